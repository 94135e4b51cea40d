"""From what the model takes to images in 0 to 1, and back: augmentations need pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import InputError, SettingError
from ..normalization import Normalisation, normalisation_of
from ..options import PixelOptions
from ..settings import Settings
from ..tensors import at_least_float32


class Pixels:
    """Undoes the input normalisation of a model: that of the settings `mean` and `std`, else the model's own."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        given = settings.options(PixelOptions)
        try:
            self.scale: Normalisation = normalisation_of(model, given.mean, given.std)
        except InputError as error:
            raise SettingError(
                f"The method augments images, for which it must undo their normalisation. {error}"
            ) from None

    def of(self, x: Tensor) -> Tensor:
        """Return inputs of the model, (B, 3, H, W), as images in 0 to 1, in float32 or better."""
        if x.dim() != 4 or x.shape[1] != 3 or not x.is_floating_point():
            raise InputError(
                f"Expected RGB images, float (B, 3, H, W), to augment, but got {x.dtype} {tuple(x.shape)}."
            )
        wide = at_least_float32(x)
        mean, std = self._like(wide)
        return wide * std + mean

    def back(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Return images in 0 to 1 as the model takes them, in the type of `like`."""
        mean, std = self._like(pixels)
        x = ((pixels - mean) / std).to(like.dtype)
        # On a CPU most networks run these copies a tenth to a third faster in this layout.
        return x.contiguous(memory_format=torch.channels_last) if x.is_cpu else x

    def _like(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = (
            torch.tensor(values, device=x.device, dtype=x.dtype).view(3, 1, 1)
            for values in (self.scale.mean, self.scale.std)
        )
        return mean, std
