"""How requests become batches."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from delta_tta.serve.batching import MOST_WAITING, Batching, Job, Lane
from delta_tta.serve.inference import RefusedError


class Recorder:
    """Answers with what it was given, and notes the batches."""

    def __init__(self):
        self.sizes = []
        self.hold = 0.0

    def __call__(self, jobs):
        self.sizes.append([len(job.samples) for job in jobs])
        time.sleep(self.hold)
        for job in jobs:
            job.settle(job.samples)


def run(work, batching):
    """Run `work(lane, recorder)` in an event loop."""

    async def inside():
        recorder = Recorder()
        with ThreadPoolExecutor(2) as pool:
            lane = Lane(recorder, batching, pool)
            found = await work(lane, recorder)
            await lane.close()
        return found, recorder.sizes

    return asyncio.run(inside())


def samples(size, value=0.0):
    return torch.full((size, 2), float(value))


def test_each_request_is_a_batch_unless_asked_otherwise():
    async def work(lane, _):
        return await asyncio.gather(*[lane.put(Job(samples(2, n), ("", True))) for n in range(5)])

    found, sizes = run(work, Batching())
    assert sizes == [[2]] * 5
    assert [one[0, 0].item() for one in found] == [0, 1, 2, 3, 4]


def test_requests_that_wait_are_answered_together_up_to_the_limit():
    async def work(lane, _):
        return await asyncio.gather(*[lane.put(Job(samples(3, n), ("", True))) for n in range(7)])

    found, sizes = run(work, Batching(8, 0.0))
    assert sizes == [[3, 3], [3, 3], [3, 3], [3]]
    assert [one[0, 0].item() for one in found] == list(range(7))


def test_others_streams_and_parameters_are_not_mixed_and_the_order_stays():
    keys = [("a", True), ("a", True), ("b", True), ("a", False), ("a", False), None, None, ("a", True)]

    async def work(lane, _):
        return await asyncio.gather(*[lane.put(Job(samples(1, n), key)) for n, key in enumerate(keys)])

    found, sizes = run(work, Batching(8, 0.0))
    assert sizes == [[1, 1], [1], [1, 1], [1], [1], [1]]
    assert [one[0, 0].item() for one in found] == list(range(8))


def test_a_request_waits_for_others_and_no_longer_than_allowed():
    async def work(lane, _):
        first = lane.put(Job(samples(1), ("", True)))
        await asyncio.sleep(0.02)
        second = lane.put(Job(samples(1), ("", True)))
        await asyncio.gather(first, second)
        began = time.monotonic()
        await lane.put(Job(samples(1), ("", True)))
        return time.monotonic() - began

    waited, sizes = run(work, Batching(4, 0.3))
    assert sizes == [[1, 1], [1]]
    assert waited >= 0.3


def test_a_full_batch_does_not_wait():
    async def work(lane, _):
        began = time.monotonic()
        await asyncio.gather(*[lane.put(Job(samples(2), ("", True))) for _ in range(2)])
        return time.monotonic() - began

    waited, sizes = run(work, Batching(4, 60.0))
    assert sizes == [[2, 2]]
    assert waited < 30


def test_a_failure_reaches_all_of_its_batch_and_nobody_else():
    def fail(jobs):
        if len(jobs[0].samples) == 2:
            raise ArithmeticError("no")
        for job in jobs:
            job.settle(job.samples)

    async def inside():
        with ThreadPoolExecutor(1) as pool:
            lane = Lane(fail, Batching(4, 0.0), pool)
            jobs = [lane.put(Job(samples(2), ("", True))), lane.put(Job(samples(2), ("", True)))]
            other = lane.put(Job(samples(1), ("b", True)))
            acted = lane.act(lambda: 1 / 0)
            found = await asyncio.gather(*jobs, other, acted, return_exceptions=True)
            await lane.close()
        return found

    one, two, other, acted = asyncio.run(inside())
    assert isinstance(one, ArithmeticError)
    assert isinstance(two, ArithmeticError)
    assert len(other) == 1
    assert isinstance(acted, ZeroDivisionError)


def test_a_client_that_goes_away_is_no_failure():
    async def work(lane, recorder):
        recorder.hold = 0.05
        gone = lane.put(Job(samples(1)))
        await asyncio.sleep(0.01)
        gone.cancel()
        return await lane.put(Job(samples(2)))

    found, sizes = run(work, Batching())
    assert len(found) == 2
    assert sizes == [[1], [2]]


def test_closing_answers_what_waits_and_refuses_the_rest():
    async def work(lane, recorder):
        recorder.hold = 0.01
        waiting = [lane.put(Job(samples(1, n), ("", True))) for n in range(5)]
        closing = asyncio.create_task(lane.close())
        await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="stopping"):
            lane.put(Job(samples(1)))
        await closing
        return await asyncio.gather(*waiting)

    found, _ = run(work, Batching(2, 60.0))
    assert [one[0, 0].item() for one in found] == [0, 1, 2, 3, 4]


def test_a_queue_has_an_end():
    async def work(lane, _):
        jobs = [lane.put(Job(samples(1))) for _ in range(MOST_WAITING)]
        with pytest.raises(RefusedError, match="requests wait") as refused:
            lane.put(Job(samples(1)))
        assert refused.value.status == 503
        await asyncio.gather(*jobs)
        return lane.idle or lane.waiting == 0

    assert run(work, Batching())[0]
