"""DeYO (Lee et al. 2024): train on sure samples whose prediction needs the shape of the object."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from ..engine.draws import numbers
from ..errors import InputError, SettingError
from ..losses import entropy_weights
from ..norms.last import last_blocks
from ..objectives import Objective
from ..options import SeedOptions, ThresholdOptions
from ..prediction import Prediction
from ..registry import State, component
from ..settings import Settings
from ..tensors import at_least_float32

NOT_RUN = -2.0
"""Stands for the PLPD of a sample that was not run again; no true one is below −1."""


@component("deyo", "objective", "entropy of sure samples that depend on the shape (DeYO, Lee et al. 2024)", alone=True)
class Deyo(Objective):
    """L = sg(e^{E0 − H} + e^{PLPD}) · H where H < τ and PLPD > τ'.

    PLPD = p[y*](x) − p[y*](x'), where x' is x with its patches shuffled.
    """

    @dataclass(frozen=True)
    class Options(SeedOptions, ThresholdOptions):
        """Settings of DeYO.

        Attributes:
            deyo_margin: E0 of the weight, as a fraction of ln K.
            deyo_plpd: τ', the PLPD above which a sample trains.
            deyo_patches: in a row and in a column of an image.
        """

        deyo_margin: float = 0.4
        deyo_plpd: float = 0.2
        deyo_patches: int = 4

        def __post_init__(self) -> None:
            super().__post_init__()
            for name, fine, words in (
                ("deyo_margin", 0 <= self.deyo_margin < math.inf, "at least 0 and finite"),
                ("deyo_plpd", -1 <= self.deyo_plpd <= 1, "between -1 and 1"),
                ("deyo_patches", isinstance(self.deyo_patches, int) and self.deyo_patches >= 2, "an integer from 2 on"),
            ):
                if not fine:
                    raise SettingError(f"Expected setting `{name}` to be {words}, but got {getattr(self, name)!r}.")

    defaults: ClassVar[Mapping[str, Any]] = {"reduction": "selected"}
    default_threshold = 0.5
    synchronises = False
    looks = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.options = settings.options(self.Options)
        self.seed = self.options.seed

    @staticmethod
    def fixed(layers: Sequence[str]) -> frozenset[str]:
        """The last blocks and the final norm do not train."""
        return last_blocks(layers)

    def look(self, x: Tensor, prediction: Prediction, run: Callable[[Tensor], Tensor], state: State) -> State:
        """Return the PLPD of the samples below the margin, whose patches are shuffled; NOT_RUN for the others."""
        patches = self.options.deyo_patches
        if x.dim() != 4 or min(x.shape[2:]) < patches:
            raise InputError(
                f"Expected images (B, C, H, W) of at least {patches}×{patches} pixels, whose patches DeYO shuffles, "
                f"but got shape {tuple(x.shape)}."
            )
        sure = self._sure(prediction)
        plpd = torch.full_like(prediction.p[:, 0], NOT_RUN)
        if bool(sure.any()):
            orders = numbers(self.seed, self._step(state))
            p, y = prediction.p[sure], prediction.label[sure].unsqueeze(1)
            shuffled = Prediction(run(shuffle_patches(x.detach()[sure], patches, orders)))
            plpd[sure] = (p.gather(1, y) - shuffled.p.gather(1, y)).squeeze(1).to(plpd)
        return {"plpd": plpd}

    def loss(self, prediction: Prediction, state: State) -> tuple[Tensor, Tensor | None]:
        """Samples below the margin and above the threshold train."""
        h, plpd = prediction.entropy.detach(), state["plpd"]
        weight = entropy_weights(h, self.options.deyo_margin * math.log(prediction.classes)) + plpd.exp()
        return weight * prediction.entropy, self._sure(prediction) & (plpd > self.options.deyo_plpd)

    def next_state(self, prediction: Prediction, state: State, selected: Tensor | None) -> State:
        """Count the step; the next draws other orders."""
        return {"step": torch.tensor(float(self._step(state) + 1))}

    def _sure(self, prediction: Prediction) -> Tensor:
        return prediction.entropy.detach() < self.threshold * math.log(prediction.classes)

    @staticmethod
    def _step(state: State) -> int:
        return int(state["step"]) if "step" in state else 0


def shuffle_patches(x: Tensor, patches: int, orders: Generator) -> Tensor:
    """Return images (B, C, H, W) of which each is cut into patches × patches, each image in another order.

    Images whose sides are not multiples of `patches` are made smaller for it, and large again after it.
    """
    batch, channels, *size = x.shape
    h, w = (side // patches for side in size)
    order = torch.rand(batch, patches**2, generator=orders).argsort(1).to(x.device)
    cut = _resized(x, [h * patches, w * patches]).reshape(batch, channels, patches, h, patches, w)
    cut = cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, patches**2, channels, h, w)
    cut = cut[torch.arange(batch, device=x.device).unsqueeze(1), order]
    cut = cut.reshape(batch, patches, patches, channels, h, w).permute(0, 3, 1, 4, 2, 5)
    return _resized(cut.reshape(batch, channels, h * patches, w * patches), size)


def _resized(x: Tensor, size: list[int]) -> Tensor:
    if list(x.shape[2:]) == size:
        return x
    return F.interpolate(at_least_float32(x), size, mode="bilinear", antialias=True).to(x)
