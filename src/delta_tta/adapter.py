"""The adapter: what a user holds. It checks input, answers, and owns everything all methods share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from . import state as states
from .errors import InputError, StateError
from .learner import Learner
from .recipe import Recipe
from .schedules import SCHEDULES, Worker
from .settings import Settings
from .signals import Signals
from .subject import Subject

F = TypeVar("F", bound=Callable[..., Any])

# torch.compile(model) is welcome; the adapter around it is not for tracing. torch.compiler.disable would do, but
# importing it costs as much time as torch itself, and this form of it waits until someone compiles.
_never_compiled: Callable[[F], F] = getattr(torch, "_disable_dynamo", torch.compiler.disable)


class Adapter(nn.Module):
    """A classifier that adapts while it predicts. Made by `delta_tta.adapt`.

    Calling it answers a batch and learns from it. It puts its own layers into the model it was given; `unload`
    takes them out again. train() and eval() have no effect: dropout is always off.
    """

    def __init__(self, model: nn.Module, recipe: Recipe, settings: Settings) -> None:
        super().__init__()
        self.recipe = recipe
        self.settings = settings
        self._learner = Learner(Subject(model, recipe, settings), recipe, settings)
        self._schedule = SCHEDULES[settings.update](self._learner, settings.length)
        self._worker = Worker()
        self._signals = Signals()
        self._unloaded = False
        self.model = model
        self.training = False

    @_never_compiled
    def forward(self, images: Tensor) -> Tensor:
        """Return the logits (B, K) of a batch, and learn from it."""
        self.wait()
        with torch.inference_mode(False):
            x = self._checked(images)
            if self.settings.episodic:
                self._restore_source()
            background = self.settings.background
            logits, update = self._schedule.answer(x.clone() if background else x, later=background)
            step, samples = self._signals.step + 1, self._signals.samples + len(x)
            self._signals = Signals(step=step, samples=samples)

            def learn() -> None:
                self._signals = Signals(**vars(update()), step=step, samples=samples)

            if background:
                self._worker.submit(learn, x.device.type)
            else:
                learn()
        return logits

    def predict(self, images: Tensor) -> Tensor:
        """Return the logits of a batch with what was learnt so far, and learn nothing."""
        self.wait()
        with torch.inference_mode(False):
            return self._learner.predict(self._checked(images))

    @property
    def signals(self) -> Signals:
        """What happened at the last batch."""
        self.wait()
        return self._signals

    def wait(self) -> None:
        """Wait for the background update, if one is running, and raise what it raised."""
        if self._unloaded:
            raise StateError("This adapter was unloaded; call adapt() again.")
        self._worker.wait()

    def reset(self) -> None:
        """Forget everything learnt: the source model again, bit for bit."""
        try:
            self.wait()
        finally:
            self._restore_source()
            self._signals = Signals()

    def unload(self, keep: bool = False) -> nn.Module:
        """Take the adapter's layers out and return the model; the adapter is of no more use.

        Args:
            keep: False: the source model, with its own layers, as it was given. True: plain layers with the adapted
                statistics and parameters, in eval mode, ready for export. Methods that use each batch's own
                statistics leave layers that do the same.
        """
        if keep and self.settings.prior > 0 and self.recipe.statistics == "bn":
            raise StateError(
                "A plain BatchNorm cannot mix source and batch statistics as prior > 0 does; "
                "unload() without keep, or adapt with 'tema'."
            )
        try:
            self.wait()
        finally:
            self._learner.subject.unload(keep)
            self._unloaded = True
        return self.model

    def state_dict(  # type: ignore[override]
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Return what adaptation changed, and only that; loads with torch.load(weights_only=True)."""
        self.wait()
        state: dict[str, Any] = {
            "format": states.FORMAT,
            "method": str(self.recipe),
            "settings": asdict(self.settings),
            "step": self._signals.step,
            "samples": self._signals.samples,
            **states.capture(self._learner, self._schedule),
        }
        if destination is None:
            return state
        destination[f"{prefix}adaptation"] = state  # the adapter is part of a larger module
        return destination

    def load_state_dict(self, state_dict: dict[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Go on from a saved state, bit for bit. A state that does not fit changes nothing."""
        self.wait()
        states.check(state_dict, self.recipe, self.settings, self._learner)
        self._restore_source()
        states.restore(state_dict, self._learner, self._schedule)
        self._signals = Signals(
            step=state_dict["step"],
            samples=state_dict["samples"],
            frequencies=self._learner.reweighting_memory.get("z"),
        )

    def train(self, mode: bool = True) -> Adapter:
        """Do nothing: an adapter has no training mode."""
        return self

    def extra_repr(self) -> str:
        """Show the method."""
        return f"method='{self.recipe}'"

    def _restore_source(self) -> None:
        self._learner.reset()
        self._schedule.reset()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Adapter:
        """Move, with the model, the tensors that no module owns."""
        self.wait()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch does not type it
        states.move(fn, self._learner, self._schedule)
        return self

    def _checked(self, images: Tensor) -> Tensor:
        if not isinstance(images, Tensor):
            raise InputError(f"Expected a batch of images as a tensor, but got {type(images).__name__}.")
        if images.dim() < 2 or images.numel() == 0:
            raise InputError(
                f"Expected a batch with at least one sample, such as (B, C, H, W), but got shape {tuple(images.shape)}."
            )
        x = images.detach()
        # the sum of finite numbers is finite unless it overflows: one quick pass, and a sure one only in doubt
        if x.is_floating_point() and not x.sum().isfinite() and not x.isfinite().all():
            bad = (~x.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            raise InputError(f"Expected finite values, but samples {bad} of the batch hold NaN or infinity.")
        return x.clone() if x.is_inference() else x
