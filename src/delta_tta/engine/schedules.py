"""When to update: every batch, slowly, or over a sliding window; and in whose time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, StateError
from ..norms.moving import MovingOptions
from ..prediction import Prediction
from ..rules import TRUSTED_SAMPLES
from ..settings import Settings
from ..signals import Outcome, Reason, Skip
from . import forks
from .finite import finite
from .step import Update, Updater


class Every:
    """Answer a batch and learn from it."""

    answers_together = False  # whether kept samples are part of the batch that is answered

    def __init__(self, updater: Updater, length: int) -> None:
        self.updater = updater
        self.length = length
        self.cache: Tensor | None = None

    def answer(self, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Return the logits of x and what is to be done after the answer."""
        return self.updater.observe(x, later)

    def respond(self, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Answer as above, and measure how long it takes while the memory layouts are compared."""
        return self.updater.adapted.layout.timed(self.answer, x, later)

    def reset(self) -> None:
        """Forget the samples kept."""
        self.cache = None

    def _with_cache(self, x: Tensor) -> Tensor:
        if self.cache is None:
            return x.clone()
        kept, came = ((tuple(t.shape[1:]), t.dtype, t.device) for t in (self.cache, x))
        if kept != came:  # torch.cat would convert a type, so that the model gets what it would refuse alone
            raise InputError(
                f"Expected samples of shape {kept[0]} like the ones kept for the next update ({kept[1]} on {kept[2]}), "
                f"but got {came[0]} ({came[1]} on {came[2]}). Call reset() before the shape changes, or use "
                "update='every'."
            )
        return torch.cat([self.cache, x])


class Slow(Every):
    """Answer without learning; learn from each `length` samples when they are full.

    Every sample is learnt from once, in order, in updates of exactly `length`, for any batch sizes. With
    init="first" the moving averages start from the first batch that is answered, as in the paper, however small it is.
    """

    def answer(self, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Answer at once."""
        kept = self._with_cache(x)
        logits, start = self._answer(x)
        entropy = float(Prediction(logits).entropy.mean())
        full = len(kept) // self.length * self.length

        def update() -> Outcome:
            start()
            collecting = Skip(Reason.COLLECTING, f"{len(kept)} of {self.length}")
            outcome = Outcome(entropy=entropy, frequencies=self.updater.frequencies(), skipped=collecting)
            for samples in kept[:full].split(self.length) if full else ():
                self.updater.reset_if_due()
                outcome = self.updater.observe(samples)[1]()
            self.cache = kept[full:].clone() if full < len(kept) else None
            return outcome

        return logits, update

    def _answer(self, x: Tensor) -> tuple[Tensor, Callable[[], None]]:
        """Return the logits, and what starts the averages."""
        if self.updater.settings.options(MovingOptions).init == "first" and not self.updater.started:
            return _start(self.updater, x)
        return self.updater.predict(x), lambda: None


def _start(updater: Updater, x: Tensor) -> tuple[Tensor, Callable[[], None]]:
    """Answer with the statistics of x, and return what makes them the start of the averages; nothing trains."""
    updater.adapted.discard()
    norms = updater.adapted.norms.values()
    with torch.no_grad():
        with updater.in_phase("observing"):
            logits = updater.logits(x)
        answer = updater.corrected(x, logits, seen=True)
    fine = finite([logits, *(t for norm in norms for t in norm.measured())])

    def begin() -> None:
        for norm in norms:
            norm.commit() if fine else norm.discard()

    return answer, begin


class Window(Every):
    """Answer and learn with the last `length` samples at every batch (L/B times the cost)."""

    answers_together = True

    def answer(self, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Answer the new samples as part of the window."""
        window = self._with_cache(x)[-max(self.length, len(x)) :]
        logits, learn = self.updater.observe(window, later)

        def update() -> Outcome:
            outcome = learn()
            if not outcome.bad_input:  # such samples would spoil every window they are in
                self.cache = window[-self.length :]
            return outcome

        return logits[-len(x) :], update


class Auto(Slow):
    """Learn from each batch that is large enough; collect the samples of smaller ones."""

    def answer(self, x: Tensor, later: bool) -> tuple[Tensor, Update]:
        """Answer at once; with small batches, before learning."""
        settings = self.updater.settings
        if len(x) >= TRUSTED_SAMPLES or settings.sync or settings.episodic:
            return self.updater.observe(x, later)
        return super().answer(x, later)

    def _answer(self, x: Tensor) -> tuple[Tensor, Callable[[], None]]:
        """Return the logits; the averages start from the samples collected, as these batches are too small."""
        return self.updater.predict(x), lambda: None


SCHEDULES: dict[str, type[Every]] = {"every": Every, "slow": Slow, "window": Window, "auto": Auto}


def schedule_of(updater: Updater, settings: Settings) -> Every:
    """Return the schedule of the settings; who learns nothing keeps samples only where they help to answer others."""
    kind = SCHEDULES[settings.update]
    keeps = updater.learns or (kind.answers_together and updater.compares)
    return (kind if keeps else Every)(updater, settings.length)


class Worker:
    """Runs one update at a time in a worker thread. `wait` raises its exceptions."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._executor: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        self._thread: int | None = None  # the one at work
        self._held = self._quiet = False  # during a fork: whether it is our turn, and nothing is running
        self._torn = False  # whether this process began in the middle of something
        forks.register(self)

    @property
    def here(self) -> bool:
        """Whether the caller is the thread at work, as a hook of the model may be."""
        return self._thread == threading.get_ident()

    def check(self) -> None:
        """Raise where waiting for a turn would last forever, or nobody knows what it would find."""
        if self.here:
            raise StateError(
                "The adapter was called from inside its own background update, as by a hook of the model, and would "
                "wait for itself. Read `signals` there, and call the rest from outside."
            )
        if self._torn:
            raise StateError(
                "This process was forked while another thread used the adapter, which may be half changed. Fork when "
                "nobody uses it, or load the model and adapt it in the new process."
            )

    def submit(self, task: Callable[[], None], device: torch.device) -> None:
        """Start a task under the caller's autocast and CUDA stream; the caller has waited for the one before."""
        kind = device.type
        task = torch.autocast(kind, torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))(task)
        if kind == "cuda":
            task = _on_stream(task, torch.cuda.current_stream(device))
        self._executor = self._executor or ThreadPoolExecutor(1, thread_name_prefix="delta-tta")
        self._pending = self._executor.submit(self._run, task)

    def _run(self, task: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        try:
            task()
        finally:
            self._thread = None

    def wait(self) -> None:
        """Return when nothing is running; raise what the last task raised, once."""
        self.check()
        if self._pending is not None:
            wait([self._pending])  # if the caller is interrupted here, the update is still pending
            done, self._pending = self._pending, None
            done.result()

    def settled(self) -> bool:
        """Wait and return whether the last task succeeded. `wait` raises its exception later."""
        if self._pending is None:
            return True
        wait([self._pending])
        return self._pending.exception() is None

    def hold(self, until: float) -> None:
        """Before a fork: wait for whose turn it is, and for the update, and take the next turn."""
        if self.here:  # whoever has the turn waits for us
            until = 0.0
        self._held = self.lock.acquire(timeout=max(0.0, until - time.monotonic()))
        pending = self._pending
        if pending is not None:
            wait([pending], max(0.0, until - time.monotonic()))
        self._quiet = self._held and (pending is None or pending.done())

    def let_go(self) -> None:
        """After the fork, in the parent: it is the next one's turn."""
        if self._held:
            self._held = False
            self.lock.release()

    def begin_anew(self) -> None:
        """After the fork, in the child: the thread stayed behind, and a turn that had not ended never will."""
        self._executor, self._thread = None, None
        self._torn = self._torn or not self._quiet
        if self._torn:
            self._pending = None
        if not self._held:
            self.lock = threading.RLock()
        self.let_go()

    def __reduce__(self) -> tuple[type[Worker], tuple[Any, ...]]:
        """A copy is a new worker: threads cannot be copied."""
        return Worker, ()


def _on_stream(task: Callable[[], None], stream: torch.cuda.Stream) -> Callable[[], None]:
    def run() -> None:
        with torch.cuda.stream(stream):
            task()

    return run
