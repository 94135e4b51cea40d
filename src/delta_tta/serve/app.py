"""The routes of the service over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import logging

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import __version__
from ..errors import DeltaError, StateError
from . import protocol
from .inference import RefusedError
from .security import Gate, host_alone, loopback, of_another_site
from .served import Served

log = logging.getLogger("delta_tta")

SERVER = {"name": "delta-tta", "version": __version__, "extensions": ["binary_tensor_data"]}


def explained(error: Exception) -> tuple[int, str]:
    """Return HTTP's status of an error, and the sentence for the client."""
    if isinstance(error, RefusedError):
        return error.status, str(error)
    if isinstance(error, DeltaError):
        return 409 if isinstance(error, StateError) else 400, str(error)
    log.error("A request failed", exc_info=error)
    return 500, f"The model failed: {type(error).__name__}. The log of the service has more."


def make_app(service: Served, gate: Gate, most_bytes: int) -> ASGIApp:
    """Return the application of a service.

    Args:
        service: what answers.
        gate: who may ask.
        most_bytes: the largest body.
    """

    def known(request: Request) -> None:
        name, version = request.path_params["model"], request.path_params.get("version", protocol.VERSION)
        if name != service.name or version != protocol.VERSION:
            raise RefusedError(
                404, f"Expected the model {service.name!r}, version 1, but got {name!r:.60}, {version!r:.20}."
            )

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        return JSONResponse({"ready": service.ready}, 200 if service.ready else 503)

    async def about_server(_: Request) -> Response:
        return JSONResponse(SERVER)

    async def about_model(request: Request) -> Response:
        known(request)
        return JSONResponse(await service.about())

    async def model_ready(request: Request) -> Response:
        known(request)
        return JSONResponse({"name": service.name, "ready": service.ready}, 200 if service.ready else 503)

    async def infer(request: Request) -> Response:
        try:
            known(request)
            body = await whole(request, most_bytes)
            asked = await asyncio.to_thread(protocol.read, body, request.headers.get(protocol.HEADER))
            answer = await service.infer(asked)
        except ClientDisconnect:
            raise
        except Exception as error:
            code, text = explained(error)
            service.refused(code)
            return JSONResponse({"error": text}, code)
        content, headers = await asyncio.to_thread(protocol.write, service.name, asked, answer)
        return Response(content, headers=headers)

    async def controls(request: Request) -> Response:
        body = await whole(request, 4096)
        try:
            message = json.loads(body) if body.strip() else None
        except ValueError:
            raise RefusedError(400, "Expected a JSON object or no body.") from None
        return JSONResponse({"done": await service.control(request.path_params["what"], message)})

    async def now(_: Request) -> Response:
        return JSONResponse(await service.status(), headers={"cache-control": "no-store"})

    async def metrics(request: Request) -> Response:
        content, kind = await service.metrics(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": kind})

    async def page(_: Request) -> Response:
        from .page import page, policy

        headers = {"content-security-policy": policy(), "x-content-type-options": "nosniff"}
        return Response(page(), media_type="text/html", headers=headers)

    async def failed(_: Request, error: Exception) -> Response:
        code, text = explained(error)
        return JSONResponse({"error": text}, code)

    model = "/v2/models/{model}"
    routes = [
        Route("/", page),
        Route("/status", now),
        Route("/metrics", metrics),
        Route("/control/{what}", controls, methods=["POST"]),
        Route("/v2", about_server),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
    ]
    for path in (model, model + "/versions/{version}"):
        routes += [
            Route(path, about_model),
            Route(f"{path}/ready", model_ready),
            Route(f"{path}/infer", infer, methods=["POST"]),
        ]
    handlers = {RefusedError: failed, DeltaError: failed}
    return Guarded(Starlette(routes=routes, exception_handlers=handlers), gate)


async def whole(request: Request, most: int) -> bytes:
    """Return the body of a request, and refuse one that is larger than `most` as soon as that is known."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError(415, "Expected a body that is not compressed; leave out Content-Encoding.")
    announced = request.headers.get("content-length", "0")
    parts, size = [], int(announced) if announced.isdecimal() else 0
    if size <= most:
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                break
            parts.append(part)
    if size > most:
        raise RefusedError(413, f"Expected a body of at most {most:,} bytes; send fewer samples, or raise --max-bytes.")
    return b"".join(parts)


class Guarded:
    """The application behind the gate."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._refused(request)
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        host, gate = request.headers.get("host"), self._gate
        if of_another_site(host, request.headers.get("origin")):
            return JSONResponse({"error": "Expected a page of this service, but another site's asked."}, 403)
        if gate.opens(request.headers.get("authorization")):
            return None
        if gate.needs(request.url.path):
            kind = "Basic" if request.method == "GET" and request.url.path == "/" else "Bearer"
            challenge = {"www-authenticate": f'{kind} realm="delta-tta"'}
            return JSONResponse({"error": "Expected the header `Authorization: Bearer TOKEN`."}, 401, challenge)
        if host is not None and not loopback(host_alone(host)):  # a name of another site that leads here
            return JSONResponse({"error": f"Expected the host localhost, but got {host!r:.80}."}, 403)
        return None
