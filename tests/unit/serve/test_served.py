"""A service in this process, as the routes see it."""

import asyncio
import json

import pytest

from nets import CLASSES, batches
from serving import request, serving, settled

pytest.importorskip("prometheus_client")
from delta_tta.serve.served import Local


def test_the_routes_reach_the_service():
    async def work():
        async with serving() as service:
            local, (x,) = Local(service), batches(1)
            assert (local.name, local.ready) == ("conv", True)
            assert (await local.infer(request(x))).outputs["logits"].shape == (12, CLASSES)
            await settled(service)
            local.refused(404)
            found = await local.status()
            assert (found["samples"], found["errors"], found["locked"]) == (12, 1, True)
            json.dumps(found, allow_nan=False)
            text, kind = await local.metrics("")
            assert kind.startswith("text/plain")
            assert b'delta_tta_errors_total{status="404"} 1.0' in text
            assert await local.control("freeze", None) == "The service learns no more"
            assert not service.learning
        assert not local.ready

    asyncio.run(work())


def test_what_the_protocol_tells_about_the_model():
    async def work():
        async with serving() as service:
            about = await Local(service).about()
        shapes = {one["name"]: one["shape"] for one in about["outputs"]}
        assert shapes == {"logits": [-1, CLASSES], "probabilities": [-1, CLASSES], "classes": [-1]}
        assert (about["name"], about["versions"]) == ("conv", ["1"])

    asyncio.run(work())
