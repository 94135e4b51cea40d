"""A service around a small network, without any server; and a client of its routes in this process."""

import asyncio
import json
from contextlib import asynccontextmanager

import delta_tta
from delta_tta.normalization import Normalisation
from delta_tta.serve.inference import Inference
from delta_tta.serve.inputs import Wanted
from delta_tta.serve.service import Options, Service
from nets import conv_net

HALF = Normalisation((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
WANTED = Wanted((3, 8, 8), HALF)


@asynccontextmanager
async def serving(method="tent+delta", wanted=WANTED, **options):
    """A service that has started; it learns before it answers."""
    service = Service("conv", lambda: delta_tta.adapt(conv_net(), method), wanted, Options(**options))
    await service.start()
    try:
        yield service
    finally:
        await service.close()


def request(x, **more):
    """A request for answers to a tensor."""
    return Inference("FP32", tuple(x.shape), x.numpy(), **more)


async def settled(service):
    """Wait until nothing waits or runs: a batch is counted after its answer."""
    while not all(place.lane.idle for place in service.places.values()):
        await asyncio.sleep(0.005)


async def fetched(app, method, path, body=b"", **headers):
    """Ask an ASGI application; return status, headers and body (JSON read)."""
    sent, parts = [], [body[:100], body[100:]]

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    named = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "server": ("localhost", 80),
        "client": ("localhost", 1), "headers": [(k.encode(), v.encode()) for k, v in named.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    found = {k.decode(): v.decode() for k, v in sent[0]["headers"]}
    content = b"".join(one.get("body", b"") for one in sent[1:])
    return sent[0]["status"], found, json.loads(content) if "json" in found.get("content-type", "") else content
