"""The service without any server: requests in, answers out, states kept."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ..adapter import Adapter
from ..errors import InputError
from ..signals import Signals
from .batching import Batching, Job, Lane
from .inference import OUTPUTS, Answer, Array, Inference, RefusedError
from .inputs import Wanted
from .journal import Journal
from .streams import Maker, Slot

log = logging.getLogger("delta_tta")

TICK = 0.25
"""Seconds between two looks whether a checkpoint is due."""


@dataclass(frozen=True)
class Options:
    """How the service works.

    Attributes:
        streams: one state for all streams ("shared"), or one for each ("separate").
        most: adapters in memory; beyond, the one least recently used is saved and dropped.
        folder: where the states are kept; None: nowhere.
        every: batches from one checkpoint to the next.
        seconds: or so much time, if anything was learnt.
        keep: checkpoints of a stream.
        batching: how requests become batches.
        learning: whether the service begins learning, or frozen.
        ahead: answer with what was learnt before (`predict`), and run the model again to learn.
    """

    streams: Literal["shared", "separate"] = "shared"
    most: int = 16
    folder: Path | None = None
    every: int = 100
    seconds: float = 30.0
    keep: int = 3
    batching: Batching = field(default_factory=Batching)
    learning: bool = True
    ahead: bool = False


@dataclass(eq=False)
class Place:
    """A slot and the queue in front of it."""

    slot: Slot
    lane: Lane


class Service:
    """Answers requests of many streams with models that adapt."""

    def __init__(self, name: str, adapt: Callable[[], Adapter], wanted: Wanted, options: Options) -> None:
        self.name, self.wanted, self.options = name, wanted, options
        self.learning = options.learning
        self.frozen: set[str] = set()  # streams that are to learn nothing, in memory or not
        self._maker = Maker(adapt, options.folder, options.every, options.keep)
        self.places: OrderedDict[str, Place] = OrderedDict()
        self._opening = asyncio.Lock()
        self._pool = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="delta-tta-serve")
        self._keeper: asyncio.Task[None] | None = None
        self.ready = False

    async def start(self) -> None:
        """Load what was learnt before, answer once to nobody, and begin."""
        if self.options.folder is not None:
            self.options.folder.mkdir(parents=True, exist_ok=True)
        await self._ask(self._begin)
        if self.options.streams == "shared":
            await self._place("shared")
        self._keeper = asyncio.create_task(self._keep())
        self.journal.event("start", f"{self.name} is served")
        self.ready = True

    def _begin(self) -> None:
        """Learn how many classes there are, from a copy that answers one sample and goes."""
        adapter = self._maker.trial()
        device = next((p.device for p in adapter.parameters()), torch.device("cpu"))
        logits = adapter.predict(torch.zeros(1, *self.wanted.shape, device=device))
        self._device = device
        self.classes, self.method = int(logits.shape[1]), str(adapter.recipe)
        self.words, self.network = adapter.extra_repr().partition(": ")[2], type(adapter.model).__name__
        self.journal = Journal(self.classes)

    async def close(self) -> None:
        """Answer what waits, save all states, and end."""
        self.ready = False
        if self._keeper is not None:
            self._keeper.cancel()
        async with self._opening:
            for place in list(self.places.values()):
                await place.lane.close()
                if not await self._ask(place.slot.close):
                    log.error("The last batches of %r are lost: %s", place.slot.identity, place.slot.error)
        self._pool.shutdown()

    async def infer(self, request: Inference) -> Answer:
        """Answer a request; raise InputError or RefusedError, which change nothing."""
        came = time.perf_counter()
        samples = await self._ask(partial(self.wanted.tensor, request))
        if self.options.streams == "separate" and not request.stream:
            raise InputError("Expected the parameter `stream`: each stream has its own state here.")
        place = await self._place(request.stream if self.options.streams == "separate" else "shared")
        together = None if request.reset else (request.stream, request.learn)
        job = Job(samples, together, request.stream, request.learn, request.reset)
        logits: Tensor = await place.lane.put(job)
        answer: Answer = await self._ask(partial(outputs, logits, list(request.outputs)))
        self.journal.answered(time.perf_counter() - came)
        return answer

    async def control(self, stream: str | None, act: Callable[[Slot], str]) -> str:
        """Do something to the slot of one stream, or to all in memory, in their turn."""
        if stream is not None and self.options.streams == "shared":
            raise RefusedError(400, "Expected no `stream`: all streams share one state here.")
        places = [await self._place(stream)] if stream is not None else list(self.places.values())
        if not places:
            raise RefusedError(409, "No stream has sent anything yet.")
        said = await asyncio.gather(*[place.lane.act(partial(act, place.slot)) for place in places])
        return said[0] if len(said) == 1 else f"{said[0]}; {len(said)} streams in memory"

    async def _ask(self, task: Callable[[], Any]) -> Any:
        """Run something that computes outside the event loop, and apart from the models."""
        return await asyncio.get_running_loop().run_in_executor(None, task)

    async def _place(self, identity: str) -> Place:
        """Return the place of a stream; another may have to go."""
        if identity not in self.places:
            async with self._opening:
                if not self.ready and self._keeper is not None:
                    raise RefusedError(503, "The service is stopping; send the request again in a moment.")
                if identity not in self.places:
                    await self._make_room()
                    make = (
                        self._maker.shared
                        if self.options.streams == "shared"
                        else partial(self._maker.separate, identity)
                    )
                    slot = await self._ask(make)
                    slot.frozen = identity in self.frozen
                    self.places[identity] = self._queue(slot)
                    if slot.resumed:
                        self.journal.event("resume", f"{identity} continues from its checkpoint")
        self.places.move_to_end(identity)
        return self.places[identity]

    async def _make_room(self) -> None:
        """Save and drop the stream least recently used; what it sends meanwhile waits until it can come back."""
        while len(self.places) >= self.options.most:
            identity, place = self.places.popitem(last=False)
            await place.lane.close()
            if not await self._ask(place.slot.close):
                self.places[identity] = self._queue(place.slot)
                self.places.move_to_end(identity, last=False)
                text = f"No room for another stream: {identity!r} cannot be saved ({place.slot.error})."
                raise RefusedError(503, text)
            kept = "saved and " if self.options.folder is not None else ""
            self.journal.event("drop", f"{identity} was {kept}dropped from memory")

    def _queue(self, slot: Slot) -> Place:
        return Place(slot, Lane(partial(self._answer, slot), self.options.batching, self._pool))

    def _answer(self, slot: Slot, jobs: list[Job]) -> None:
        """Answer jobs as one batch, then learn from it; in a worker thread."""
        first = jobs[0]
        parts = [job.samples for job in jobs if job.samples is not None]
        x = (parts[0] if len(parts) == 1 else torch.cat(parts)).to(self._device)
        if first.reset:
            slot.reset()
            self.journal.event("reset", f"{slot.identity} was reset by a request")
        learns = first.learn and self.learning and not slot.frozen
        stream = first.stream or None
        learn = slot.adapter.wait
        if learns and not self.options.ahead:
            logits = slot.adapter(x, stream=stream)
        else:
            logits, learn = slot.adapter.predict(x, stream=stream), partial(slot.adapter, x, stream=stream)
        logits = logits.cpu()
        for job, part in zip(jobs, logits.split([len(part) for part in parts]), strict=True):
            job.settle(part)
        latency = time.monotonic() - first.came
        slot.samples, slot.batches, slot.seen = slot.samples + len(x), slot.batches + 1, time.time()
        signals = self._learnt(slot, learn) if learns else None
        p = logits.float().softmax(1)
        entropy = float(-(p * p.clamp_min(1e-30).log()).sum(1).mean())
        self.journal.batch(logits.argmax(1).numpy(), entropy, latency, signals)
        if slot.full():
            self._save(slot)

    def _learnt(self, slot: Slot, learn: Callable[[], Any]) -> Signals | None:
        """Learn from the batch, or wait until it is learnt, and return what happened."""
        before = slot.signals
        try:
            learn()
        except Exception as error:
            log.exception("The update of %r failed; its state is the one before", slot.identity)
            self.journal.event("failure", f"{slot.identity}: an update failed ({error})")
            return None
        slot.signals = now = slot.adapter.signals
        if before is None or now.step <= before.step:
            before = None
        rolled = now.rollbacks - (0 if before is None else before.rollbacks)
        if rolled > 0:
            self.journal.rollbacks += rolled
            self.journal.event("rollback", f"{slot.identity}: {now.skipped}")
        reason = None if now.skipped is None else now.skipped.reason
        if now.bad_input and (before is None or before.skipped is None or before.skipped.reason != reason):
            self.journal.event("skip", f"{slot.identity}: not learnt from, {now.skipped}")
        return now

    def _save(self, slot: Slot) -> None:
        failed = slot.error is not None
        if slot.save():
            if failed:
                self.journal.event("checkpoint", f"{slot.identity} is saved again")
        elif not failed:
            self.journal.event("failure", f"{slot.identity} cannot be saved: {slot.error}")

    async def _keep(self) -> None:
        """Save what is due by time."""
        while True:
            await asyncio.sleep(TICK)
            for place in list(self.places.values()):
                if place.lane.idle and place.slot.due(self.options.seconds):
                    try:
                        await place.lane.act(partial(self._save, place.slot))
                    except RefusedError:  # it is dropped, or the service ends, and that saves
                        pass
                    except Exception:
                        log.exception("Saving %r failed", place.slot.identity)


def outputs(logits: Tensor, names: list[str]) -> Answer:
    """Return the outputs asked for, or all."""
    logits = logits.float()
    found: dict[str, Array] = {}
    make = {"logits": lambda: logits, "probabilities": lambda: logits.softmax(1), "classes": lambda: logits.argmax(1)}
    for name in names or OUTPUTS:
        found[name] = make[name]().numpy()
    return Answer(found)
