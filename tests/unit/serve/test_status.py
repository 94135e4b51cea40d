"""The answer to GET /status, and what the control routes do."""

import asyncio
import json
import time

import pytest

from delta_tta.errors import InputError
from delta_tta.serve.inference import RefusedError
from delta_tta.serve.status import checkpoint, control, status
from nets import batches
from serving import request, serving, settled


def checksum(service, stream="shared"):
    return service.places[stream].slot.adapter.state_dict()["checksum"]


async def learn(service, x, **more):
    await service.infer(request(x, **more))
    await settled(service)


def kinds(service):
    return [event["kind"] for event in service.journal.as_dict()["events"]]


def test_the_status_says_what_is_served_and_what_happened(tmp_path):
    async def work():
        async with serving(folder=tmp_path, every=1) as service:
            assert status(service, locked=False)["frequencies"] is None
            await learn(service, batches(1)[0])
            found = json.loads(json.dumps(status(service, locked=True), allow_nan=False))
            model = found["model"]
            assert (model["name"], model["method"], model["network"], model["classes"]) == (
                "conv",
                "tent+delta",
                "Sequential",
                5,
            )
            assert (found["learning"], found["locked"], found["samples"]) == (True, True, 12)
            (stream,) = found["streams"]
            assert (stream["id"], stream["samples"], stream["batches"]) == ("shared", 12, 1)
            assert found["checkpoint"]["step"] == 1
            assert found["history"][0]["batch"] == 12
        async with serving() as service:
            assert status(service, locked=False)["checkpoint"] is None

    asyncio.run(work())


def test_of_several_streams_the_oldest_checkpoint_counts(tmp_path):
    async def work():
        async with serving(folder=tmp_path, streams="separate", every=1) as service:
            for name in ("a", "b", "b"):
                await learn(service, batches(1)[0], stream=name)
            slots = [place.slot for place in service.places.values()]
            slots[0].saved -= 100
            found = checkpoint(slots, time.time())
            assert 100 <= found["age"] < 160
            assert (found["step"], found["failures"], found["error"]) == (2, 0, None)
        assert checkpoint([], 0.0) == {"age": None, "step": None, "failures": 0, "error": None}

    asyncio.run(work())


def test_a_snapshot_can_be_gone_back_to_and_a_reset_forgets():
    async def work():
        async with serving() as service:
            first, second = batches(2)
            with pytest.raises(RefusedError, match="take a snapshot first"):
                await control(service, "rollback", None)
            fresh = checksum(service)
            await learn(service, first)
            kept = checksum(service)
            assert await control(service, "snapshot", None) == "Snapshot of shared taken, in memory"
            await learn(service, second)
            assert checksum(service) != kept
            assert await control(service, "rollback", {}) == "shared went back to the last snapshot"
            assert checksum(service) == kept
            assert await control(service, "reset", {"stream": "shared"}) == "shared is the source model again"
            assert checksum(service) == fresh
            assert kinds(service) == ["start", "snapshot", "rollback", "reset"]

    asyncio.run(work())


def test_what_is_frozen_learns_nothing_until_it_may():
    async def work():
        async with serving(streams="separate") as service:
            x, y = batches(2)
            for name in ("a", "b"):
                await learn(service, x, stream=name)
            assert await control(service, "freeze", {"stream": "a"}) == "a learns no more"
            before = {name: checksum(service, name) for name in ("a", "b")}
            for name in ("a", "b"):
                await learn(service, y, stream=name)
            assert (checksum(service, "a") == before["a"], checksum(service, "b") == before["b"]) == (True, False)
            assert status(service, locked=False)["learning"]
            assert await control(service, "freeze", None) == "The service learns no more"
            assert not status(service, locked=False)["learning"]
            frozen = checksum(service, "b")
            await learn(service, x, stream="b")
            assert checksum(service, "b") == frozen
            assert await control(service, "learn", None) == "The service learns again"
            for name in ("a", "b"):
                await learn(service, x, stream=name)
            assert checksum(service, "a") != before["a"]
            assert checksum(service, "b") != frozen

    asyncio.run(work())


def test_what_cannot_be_done_is_refused():
    async def work():
        async with serving() as service:
            for what, message, error, words in (
                ("explode", None, RefusedError, "one of snapshot, rollback, reset, freeze, learn behind /control/"),
                ("reset", ["a"], InputError, "a JSON object or no body, but got list"),
                ("reset", {"stream": 3}, InputError, "`stream` to be a printable text"),
                ("reset", {"stream": "a"}, RefusedError, "all streams share one state"),
            ):
                with pytest.raises(error, match=words):
                    await control(service, what, message)
            assert kinds(service) == ["start"]
        async with serving(streams="separate") as service:
            with pytest.raises(RefusedError, match="No stream has sent anything yet"):
                await control(service, "reset", None)

    asyncio.run(work())
