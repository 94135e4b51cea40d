"""The service without any server."""

import asyncio
import importlib.util
import threading
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch

import delta_tta
from all_methods import assert_same_state
from delta_tta.errors import InputError
from delta_tta.normalization import IMAGENET
from delta_tta.rules.accuracy import Accuracy
from delta_tta.serve import metrics
from delta_tta.serve.batching import Batching
from delta_tta.serve.inference import Inference
from delta_tta.serve.inputs import Wanted
from delta_tta.serve.journal import SIZES
from delta_tta.serve.service import Options, Service
from delta_tta.serve.status import status
from nets import CLASSES, batches, conv_net


def made(method="tent+delta+sticky", **settings):
    return delta_tta.adapt(conv_net(), method, **settings)


@asynccontextmanager
async def serving(method="tent+delta+sticky", settings=None, **options):
    settings = {"background": True} if settings is None else settings
    service = Service("conv", lambda: made(method, **settings), Wanted((3, 8, 8), IMAGENET), Options(**options))
    await service.start()
    try:
        yield service
    finally:
        await service.close()


def request(x, **more):
    return Inference("FP32", tuple(x.shape), x.numpy(), **more)


def digest(service, stream="shared"):
    return service.places[stream].slot.adapter.state_dict()["checksum"]


def test_the_answers_and_the_state_are_those_of_an_adapter():
    async def work():
        reference = made()
        async with serving() as service:
            for x in batches(4):
                found = (await service.infer(request(x))).outputs
                np.testing.assert_array_equal(found["logits"], reference(x).numpy())
                assert found["classes"].shape == (12,)
            same = reference.state_dict()
            state = service.places["shared"].slot.adapter.state_dict()
            assert state["step"] == same["step"] == 4
            for key in ("parameters", "statistics", "reweighting", "optimizer", "filter"):
                assert_same_state(state[key], same[key])

    asyncio.run(work())


def test_an_answer_ahead_is_a_prediction_and_the_batch_is_learnt_from_all_the_same():
    async def work():
        reference = made()
        async with serving(settings={}, ahead=True) as service:
            for x in batches(4):
                found = (await service.infer(request(x))).outputs
                np.testing.assert_array_equal(found["logits"], reference.predict(x).numpy())
                reference(x)
            while not service.places["shared"].lane.idle:
                await asyncio.sleep(0.01)
            state = service.places["shared"].slot.adapter.state_dict()
            assert_same_state(state, reference.state_dict())
            assert service.journal.learnt == 48

    asyncio.run(work())


def test_what_is_refused_changes_nothing():
    async def work():
        async with serving() as service:
            (x,) = batches(1)
            await service.infer(request(x))
            before = digest(service)
            bad = x.clone()
            bad[3, 0, 0, 0] = float("inf")
            for wrong in (request(bad), request(x[:, :2]), Inference("FP32", (12, 3, 8, 8), np.zeros(5, np.float32))):
                with pytest.raises(InputError, match="Expected"):
                    await service.infer(wrong)
            assert digest(service) == before
            await service.infer(request(x, learn=False))
            assert digest(service) == before

    asyncio.run(work())


def test_the_event_loop_is_free_while_the_model_computes():
    started, go_on = threading.Event(), threading.Event()

    class Slow(torch.nn.Module):
        """Waits in its forward pass."""

        def forward(self, x):
            if len(x) > 1:
                started.set()
                assert go_on.wait(30)
            return x

    def slow():
        net = conv_net()
        net.insert(0, Slow())
        return delta_tta.adapt(net, "source")

    async def work():
        service = Service("slow", slow, Wanted((3, 8, 8), None), Options())
        await service.start()
        answer = asyncio.create_task(service.infer(request(batches(1)[0])))
        while not started.is_set():
            await asyncio.sleep(0.001)
        assert not answer.done()
        go_on.set()  # only because the loop runs do we come here
        assert (await answer).outputs["logits"].shape == (12, CLASSES)
        await service.close()

    asyncio.run(work())


def test_the_caller_does_not_wait_for_the_update():
    gate = threading.Event()

    class Waiting(torch.nn.Module):
        """Its backward pass waits."""

        def forward(self, x):
            if x.requires_grad:
                x.register_hook(lambda _: gate.wait(30) and None)
            return x

    def slow():
        net = conv_net()
        net.insert(5, Waiting())
        return delta_tta.adapt(net, "tent", background=True, update="every")

    async def work():
        service = Service("slow", slow, Wanted((3, 8, 8), None), Options())
        await service.start()
        await service.infer(request(batches(1)[0]))  # the update has not ended
        assert not service.places["shared"].lane.idle
        gate.set()
        await service.close()
        assert service.journal.as_dict()["history"][0]["used"] is not None

    asyncio.run(work())


def test_requests_together_are_one_update():
    async def work():
        reference = made("tent+delta")
        async with serving("tent+delta", batching=Batching(64, 5.0)) as service:
            parts = batches(4, size=16)
            found = await asyncio.gather(*[service.infer(request(x)) for x in parts])
            expected = reference(torch.cat(parts)).split(16)  # theirs may have come in another order
            for one, logits in zip(found, expected, strict=True):
                np.testing.assert_allclose(one.outputs["logits"], logits.numpy(), rtol=1e-4, atol=1e-4)
            while not service.places["shared"].lane.idle:  # it is counted behind the answer
                await asyncio.sleep(0.01)
            assert service.journal.sizes.counts[SIZES.index(64)] == 1

    asyncio.run(work())


def test_an_update_that_fails_is_told_and_the_service_goes_on():
    class Failing(torch.nn.Module):
        error = None

        def forward(self, x):
            if x.requires_grad:
                x.register_hook(self.back)
            return x

        def back(self, _):
            if Failing.error is not None:
                raise Failing.error

    def failing():
        net = conv_net()
        net.insert(5, Failing())
        return delta_tta.adapt(net, "tent", background=True, update="every")

    async def work():
        service = Service("fails", failing, Wanted((3, 8, 8), None), Options())
        await service.start()
        a, b = batches(2)
        before = service.places["shared"].slot.adapter.state_dict()["parameters"]
        Failing.error = ArithmeticError("from the update")
        assert (await service.infer(request(a))).outputs["logits"].shape == (12, CLASSES)
        while not service.places["shared"].lane.idle:
            await asyncio.sleep(0.01)
        Failing.error = None
        after = service.places["shared"].slot.adapter.state_dict()["parameters"]
        assert repr(after) == repr(before)
        await service.infer(request(b))
        await service.close()
        kinds = [event["kind"] for event in service.journal.as_dict()["events"]]
        assert kinds == ["start", "failure"]

    asyncio.run(work())


def test_an_estimated_accuracy_is_a_metric():
    pytest.importorskip("prometheus_client")

    async def work():
        async with serving() as service:
            await service.infer(request(batches(1)[0]))
            slot = service.places["shared"].slot
            while slot.signals is None:
                await asyncio.sleep(0.01)
            assert b"delta_tta_used{" in metrics.exposition(metrics.Collector(service), "")[0]
            assert b"delta_tta_accuracy" not in metrics.exposition(metrics.Collector(service), "")[0]
            object.__setattr__(slot.signals, "accuracy", Accuracy(0.75, 0.5, 0.875, 0.25))
            object.__setattr__(slot.signals, "worse_than_source", True)
            text = metrics.exposition(metrics.Collector(service), "")[0].decode()
            for name, value in (("accuracy", 0.75), ("accuracy_low", 0.5), ("accuracy_high", 0.875)):
                assert f'delta_tta_{name}{{stream="shared"}} {value}\n' in text
            assert 'delta_tta_worse_than_source{stream="shared"} 1.0\n' in text

    asyncio.run(work())


def test_a_method_that_estimates_its_accuracy_shows_it():
    async def work():
        async with serving(settings={"background": True, "estimate": True}) as service:
            for x in batches(2, 64):
                await service.infer(request(x))
            while service.places["shared"].slot.signals.step < 2 or not service.places["shared"].lane.idle:
                await asyncio.sleep(0.01)
            found = service.places["shared"].slot.signals.accuracy
            await service.infer(request(batches(1)[0]))
            while len(status(service, False)["history"]) < 3:
                await asyncio.sleep(0.01)
            shown = status(service, False)["history"]
            assert (shown[1]["accuracy"], shown[1]["low"], shown[1]["high"]) == found[:3]
            if importlib.util.find_spec("prometheus_client") is not None:
                text = metrics.exposition(metrics.Collector(service), "")[0]
                assert b'delta_tta_accuracy{stream="shared"}' in text

    asyncio.run(work())
