"""The service on several processes or machines: a Ray Serve application, each stream always on the same replica."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError, SettingError, nearest
from .app import explained, make_app
from .inference import Answer, Inference, RefusedError, stream_name
from .merging import Merged, merged_status
from .metrics import Collector, exposition
from .security import Gate, gate_of
from .served import Local
from .service import Options, Service
from .start import Model, make_service, name_of
from .status import control, status


def replica_of(stream: str, replicas: int) -> int:
    """Return the replica of a stream; another number of replicas moves as few streams as possible."""
    return max(range(replicas), key=lambda number: hashlib.sha256(f"{number} {stream}".encode()).digest())


class Replica:
    """A service that runs as an actor of Ray. Errors come back as (status, text)."""

    def __init__(self, chosen: Model, options: Options) -> None:
        self._make = make_service(chosen, options)
        self._service: Service | None = None
        self._starting = asyncio.Lock()

    async def _started(self) -> Service:
        async with self._starting:
            if self._service is None:
                service = self._make()
                await service.start()
                self._service = service
        return self._service

    async def about(self) -> dict[str, Any]:
        """Return what the protocol tells about the model."""
        return await Local(await self._started()).about()

    async def process(self) -> int:
        """Return the number of this process."""
        return os.getpid()

    async def infer(self, request: Inference) -> Answer | tuple[int, str]:
        """Answer a request."""
        service = await self._started()
        try:
            return await service.infer(request)
        except Exception as error:
            found = explained(error)
            service.journal.refused(found[0])
            return found

    async def status(self) -> dict[str, Any]:
        """Return the status of this replica."""
        return status(await self._started(), locked=True)

    async def families(self) -> list[Any]:
        """Return the metrics of this replica."""
        return list(Collector(await self._started()).collect())

    async def control(self, what: str, message: Any) -> str | tuple[int, str]:
        """Do what a control route asks for."""
        try:
            return await control(await self._started(), what, message)
        except Exception as error:
            return explained(error)

    async def __del__(self) -> None:
        """Ray awaits this where it stops a replica; one that is killed continues from its checkpoints."""
        service = getattr(self, "_service", None)
        if service is not None:
            await service.close()


class Routed:
    """The replicas as one service."""

    ready = True

    def __init__(self, replicas: Sequence[Any], name: str) -> None:
        self._replicas, self.name = replicas, name

    async def about(self) -> dict[str, Any]:
        """Return what the protocol tells about the model."""
        return dict(await self._replicas[0].about.remote())

    async def infer(self, request: Inference) -> Answer:
        """Answer a request on the replica of its stream."""
        if not request.stream:
            raise InputError("Expected the parameter `stream`: each stream has its own state here.")
        from ray.exceptions import RayError

        replica = self._replicas[replica_of(request.stream, len(self._replicas))]
        try:
            found = await replica.infer.remote(request)
        except RayError as error:
            text = "The replica of this stream died; another takes its place. Send the request again."
            raise RefusedError(503, text) from error
        if isinstance(found, Answer):
            return found
        raise RefusedError(*found)

    def refused(self, code: int) -> None:
        """Nothing: each replica counts its own."""

    async def status(self) -> dict[str, Any]:
        """Return the status of all replicas together."""
        return merged_status(await self._all("status"))

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics of all replicas, each with its number."""
        return exposition(Merged(await self._all("families")), accept)

    async def control(self, what: str, message: Any) -> str:
        """Do what a control route asks for, on the replica of the stream or on all."""
        stream = message.get("stream") if isinstance(message, dict) else None
        if stream is not None:
            replica = self._replicas[replica_of(stream_name(stream), len(self._replicas))]
            said = [await replica.control.remote(what, message)]
        else:
            said = await self._all("control", what, message)
        done = [one for one in said if isinstance(one, str)]
        if not done:
            raise RefusedError(*said[0])
        return "; ".join(done)

    async def _all(self, method: str, *arguments: Any) -> list[Any]:
        calls = [getattr(replica, method).remote(*arguments) for replica in self._replicas]
        found = await asyncio.gather(*calls, return_exceptions=True)
        alive = [one for one in found if not isinstance(one, BaseException)]
        if not alive:
            raise RefusedError(503, "No replica answers; they are being started again.")
        return alive


def application(chosen: Model, options: Options, replicas: int, gate: Gate, most_bytes: int = 64 * 2**20) -> Any:
    """Return the application for `ray.serve.run`.

    Args:
        chosen: what is served.
        options: with separate states, in a folder that all machines share.
        replicas: how many processes hold the streams.
        gate: who may ask.
        most_bytes: the largest request.
    """
    if options.streams != "separate" or options.folder is None:
        raise SettingError("Expected separate streams and a folder for checkpoints, so that a replica can be replaced.")
    from ray import serve

    name = name_of(chosen)
    actor = serve.deployment(num_replicas=1, max_ongoing_requests=1000, health_check_period_s=1)(Replica)
    handles = [actor.options(name=f"replica-{number}").bind(chosen, options) for number in range(replicas)]

    def routes() -> Any:
        place = serve.get_replica_context().app_name
        found = [serve.get_deployment_handle(f"replica-{number}", place) for number in range(replicas)]
        return make_app(Routed(found, name), gate, most_bytes)

    entry = serve.deployment(name="entry", max_ongoing_requests=1000)(serve.ingress(routes)(_Entry))
    return entry.bind(*handles)


class _Entry:
    """Answers HTTP in front of the replicas."""

    def __init__(self, *replicas: Any) -> None:
        """Take the replicas, so that Ray starts them before."""


KNOWN = ("model", "method", "weights", "name", "replicas", "checkpoints", "every", "max_streams", "token_file")


def build(arguments: Mapping[str, str]) -> Any:
    """Return the application of `serve run delta_tta.serve.ray:build model=… replicas=4 checkpoints=FOLDER`."""
    unknown = next((name for name in arguments if name not in KNOWN), None)
    if unknown is not None:
        raise SettingError(f"Unknown argument {unknown!r}.{nearest(unknown, KNOWN)}")
    missing = next((name for name in ("model", "checkpoints") if name not in arguments), None)
    if missing is not None:
        raise SettingError(f"Expected the argument {missing}=…, but got {', '.join(arguments) or 'none'}.")
    chosen = Model(
        arguments["model"],
        arguments.get("weights"),
        method=arguments.get("method"),
        settings={"background": True},
        name=arguments.get("name"),
    )
    options = replace(
        Options(streams="separate", folder=Path(arguments["checkpoints"]).absolute()),
        every=int(arguments.get("every", 100)),
        most=int(arguments.get("max_streams", 16)),
    )
    file = arguments.get("token_file")
    gate = gate_of("0.0.0.0", None, None if file is None else Path(file))
    return application(chosen, options, int(arguments.get("replicas", 2)), gate)
