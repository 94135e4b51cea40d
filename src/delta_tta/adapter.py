"""The adapter: what a user holds. It checks input, answers, and owns everything all methods share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .distributed import Ranks
from .engine import state as states
from .engine.accuracy import AccuracyEstimator
from .engine.fisher import show_source
from .engine.inputs import checked, stream_names
from .engine.model import AdaptedModel
from .engine.model_checks import check_bakes
from .engine.schedules import Worker, schedule_of
from .engine.stateful import Stateful
from .engine.step import Updater
from .errors import StateError
from .guard.monitor import hooks_of
from .postprocess.base import Filter
from .postprocess.filters import filtered
from .recipe import Recipe
from .registry import COMPONENTS
from .settings import Settings
from .signals import Outcome, Signals

F = TypeVar("F", bound=Callable[..., Any])

# Importing torch.compiler.disable, which does the same, takes as long as importing torch.
_never_compiled: Callable[[F], F] = getattr(torch, "_disable_dynamo", torch.compiler.disable)


class Adapter(Stateful):
    """A classifier that adapts while it predicts. Made by `delta_tta.adapt`.

    Calling it answers a batch and learns from it. It puts its own layers into the model it was given; `unload` takes
    them out again. train() and eval() have no effect: dropout is always off. Move the adapter with `.to()`, not the
    model inside. Calls from several threads take turns.
    """

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        settings: Settings,
        source: Iterable[Tensor] | None = None,
        ranks: Ranks | None = None,
        wrapper: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.settings = settings
        with torch.inference_mode(False):
            adapted = AdaptedModel(model, recipe, settings, ranks, wrapper)
            with contextlib.ExitStack() as undo:
                undo.callback(adapted.unload, keep=False)
                kind = Updater if recipe.standalone is None else COMPONENTS[recipe.standalone].build
                self._updater: Updater = kind(adapted, recipe, settings)
                undo.callback(self._updater.close)
                show_source(self._updater, str(recipe), source)
                undo.pop_all()
        self._schedule = schedule_of(self._updater, settings)
        self._hooks = self._updater.hooks = hooks_of(recipe, settings, self._updater, self._schedule)
        self._filter: Filter | None = None if recipe.filter is None else COMPONENTS[recipe.filter].build(settings)
        estimates = settings.estimate and not settings.sync  # each rank would come to another number
        self._estimator = AccuracyEstimator(self._updater, recipe) if estimates else None
        self._worker = Worker()
        self._signals = Signals()
        self._unloaded = False
        self.model = model
        self.training = False

    @_never_compiled
    def forward(self, images: Tensor, stream: Hashable | Sequence[Hashable] | Tensor = None) -> Tensor:
        """Return the logits (B, K) of a batch, and learn from it.

        Args:
            images: the batch, in the order of time.
            stream: which camera or video the batch comes from, or, as a list or tensor, each of its samples; for
                "+sticky", which keeps them apart. Other methods have no use for it.
        """
        with self._together():
            self._worker.wait()
            x, wrong = checked(images, self._hooks.on, self.settings.sync)
            streams = self._streams(stream, len(x))
            if self.settings.episodic:
                self._restore_source()
            background = self.settings.background
            if wrong is None:
                logits, update = self._schedule.respond(x.clone() if background else x, later=background)
            else:
                logits, update = self._updater.refuse(x, wrong)
            raw, after = logits, None
            if self._filter is not None:
                logits, after = filtered(self._filter, x, logits, streams, self._updater.ranks)
            of_source = self._updater.source_at_hand(x)
            step, samples = self._signals.step + 1, self._signals.samples + len(x)

            answers = logits
            if background and self._estimator is not None:  # the caller may change them meanwhile
                x, raw, answers = x.clone(), raw.clone(), logits.clone()

            def learn() -> None:
                done = update()
                if self._filter is not None and after is not None and not done.bad_input:
                    self._filter.commit(after)
                self._updater.reset_if_due()
                self._signals = self._counted(done, step, samples)
                if self._estimator is not None and wrong is None and not done.bad_input:
                    self._estimator.look(x, raw, answers, streams, of_source)
                    self._signals = self._counted(done, step, samples)

            if background:
                self._signals = self._counted(Outcome(), step, samples)
                self._worker.submit(learn, x.device)
            else:
                learn()
        return logits

    def predict(self, images: Tensor, stream: Hashable | Sequence[Hashable] | Tensor = None) -> Tensor:
        """Return the logits of a batch with what was learnt so far, and learn nothing."""
        with self._together():
            self._worker.wait()
            x = checked(images, self._hooks.on, self.settings.sync)[0]
            streams = self._streams(stream, len(x))
            logits = self._updater.predict(x)
            if self._filter is not None:
                logits, _ = filtered(self._filter, x, logits, streams, self._updater.ranks)
            return logits

    @property
    def signals(self) -> Signals:
        """What happened at the last batch."""
        if self._worker.here:  # a hook of the model that runs in the background would wait for itself
            return self._signals
        try:
            with self._turn():
                self._worker.wait()
                return self._signals
        except AttributeError as error:  # torch would report it as "no attribute 'signals'"
            raise RuntimeError("The background update failed.") from error

    def wait(self) -> None:
        """Wait for the background update, if one is running, and raise what it raised."""
        with self._turn():
            self._worker.wait()

    def reset(self) -> None:
        """Return to the source model, bit for bit."""
        with self._turn():
            try:
                self._worker.wait()
            finally:
                self._restore_source()
                self._hooks.reset()
                if self._estimator is not None:
                    self._estimator.reset()
                self._signals = Signals()

    def unload(self, keep: bool = False) -> nn.Module:
        """Restore the original layers and return the model. The adapter cannot be used afterwards.

        Args:
            keep: False: the source model, with its own layers, as it was given. True: plain layers with the adapted
                statistics and parameters, in eval mode, ready for export. Methods that use each batch's own
                statistics leave layers that do the same. What "+mirror" and "+sticky" do to the answers is no part of
                a model and stays behind.
        """
        with self._turn():
            if keep:
                check_bakes(self.recipe, self.settings)
            try:
                self._worker.wait()
                if keep:
                    self._updater.bake()
            finally:
                self._updater.close()
                self._updater.adapted.unload(keep)
                self._unloaded = True
            return self.model

    def _captured(self) -> dict[str, Any]:
        with self._turn():
            self._worker.wait()
            return {
                "format": states.FORMAT,
                "method": str(self.recipe),
                "settings": self.settings.of(self.recipe.uses),
                "step": self._signals.step,
                "samples": self._signals.samples,
                "guard": self._hooks.memory(),
                "filter": {} if self._filter is None else self._filter.remembered(),
                "accuracy": {} if self._estimator is None else self._estimator.remembered(),
                **states.capture(self._updater, self._schedule),
            }

    def _recover(self, state: dict[str, Any]) -> None:
        with self._turn():
            self._worker.wait()
            states.check(state, self.recipe, self.settings, self._updater)
            states.check_filter(state, self._filter)
            states.check_accuracy(state, self._estimator)
            self._restore_source()
            states.restore(state, self._updater, self._schedule)
            self._hooks.remember(state["guard"])
            if self._filter is not None:
                self._filter.recall(state["filter"])
            if self._estimator is not None:
                self._estimator.recall(state.get("accuracy", {}))  # older states have none
            found = Outcome(frequencies=self._updater.frequencies())
            self._signals = self._counted(found, state["step"], state["samples"])

    def train(self, mode: bool = True) -> Adapter:
        """Do nothing: an adapter has no training mode."""
        return self

    def extra_repr(self) -> str:
        """Show the method, and what its components do."""
        return f"method='{self.recipe}': {self.recipe.in_words(bool(self._updater.adapted.norms))}"

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One caller at a time, in normal mode even inside inference mode."""
        self._worker.check()
        with self._worker.lock, torch.inference_mode(False):
            if self._unloaded:  # perhaps while this caller waited for its turn
                raise StateError("This adapter was unloaded; call adapt() again.")
            yield

    @contextmanager
    def _together(self) -> Iterator[None]:
        """A turn in which all ranks exchange messages, if there are other ranks."""
        ranks = self._updater.ranks
        with self._turn(), contextlib.nullcontext() if ranks is None else ranks.step():
            yield

    def _counted(self, outcome: Outcome, step: int, samples: int) -> Signals:
        return Signals(
            **vars(outcome),
            step=step,
            samples=samples,
            refused=self._hooks.refused,
            rollbacks=self._hooks.rollbacks,
            share=None if self._updater.shares is None else self._updater.shares.share,
            stays=None if self._filter is None else self._filter.stays,
            layout=self._updater.adapted.layout.now,
            accuracy=None if self._estimator is None else self._estimator.accuracy,
            worse_than_source=None if self._estimator is None else self._estimator.worse_than_source,
        )

    def _streams(self, stream: Any, size: int) -> list[Hashable] | None:
        """Return the stream of each sample, for the filter if there is one."""
        return None if self._filter is None else stream_names(stream, size, self.settings.sync)

    def _restore_source(self) -> None:
        self._updater.reset()
        self._schedule.reset()
        if self._filter is not None:
            self._filter.reset()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Adapter:
        """Move also the tensors that no module owns."""
        with self._turn():
            self._worker.wait()
            self._updater.adapted.move(fn, lambda: nn.Module._apply(self, fn, recurse))
            states.move(fn, self._updater, self._schedule)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Wait before being copied or pickled."""
        self._worker.wait()
        return self.__dict__.copy()
