"""From what a client sent to the tensor that the model takes."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.sets import square
from ..errors import InputError, install
from ..normalization import Normalisation
from .inference import Array, Inference, unknown_type


@dataclass(frozen=True)
class Wanted:
    """What the model takes.

    Attributes:
        shape: of one sample, such as (3, 224, 224).
        normalisation: of its channels; None where the model takes no images of three channels.
        most: samples in one request.
        pixels: of one encoded image.
    """

    shape: tuple[int, ...]
    normalisation: Normalisation | None
    most: int = 256
    pixels: int = 50_000_000

    def tensor(self, request: Inference) -> Tensor:
        """Return the samples of a request, float32, or raise InputError."""
        kind, shape, content = request.datatype, request.shape, request.content
        if not 1 <= shape[0] <= self.most:
            raise InputError(
                f"Expected 1 to {self.most} samples in a request, but got {shape[0]}; send several requests."
            )
        if len(content) != math.prod(shape) and (isinstance(content, list) or content.size != math.prod(shape)):
            raise InputError(f"Expected {math.prod(shape)} values for shape {list(shape)}, but got {np.size(content)}.")
        if isinstance(content, list):
            if shape not in ((shape[0],), (shape[0], 1)):
                raise InputError(f"Expected shape [N] or [N, 1] of encoded images, but got {list(shape)}.")
            return self._normalised(np.stack([self._decoded(one, place) for place, one in enumerate(content)]))
        if shape[1:] != self.shape:
            raise InputError(f"Expected shape {['N', *self.shape]}, but got {list(shape)}.")
        if kind == "UINT8":
            return self._normalised(content.reshape(shape))
        if kind not in ("FP32", "FP16"):
            raise unknown_type(kind)
        x = torch.from_numpy(content.reshape(shape).astype(np.float32))  # a copy: the buffer may not be written
        if not x.isfinite().all():
            bad = (~x.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
            raise InputError(f"Expected finite values, but samples {bad[:20]} hold NaN or infinity.")
        return x

    def _normalised(self, images: Array) -> Tensor:
        if self.normalisation is None:
            raise InputError(f"Expected FP32 or FP16: the model takes samples of {list(self.shape)}, no RGB images.")
        return self.normalisation(torch.from_numpy(np.ascontiguousarray(images)))

    def _decoded(self, content: bytes, place: int) -> Array:
        """Return one encoded image as the model wants it, uint8 (3, H, W)."""
        if self.normalisation is None or self.shape[1] != self.shape[2]:
            raise InputError(f"Expected FP32 or FP16: the model takes samples of {list(self.shape)}, no square images.")
        Image = _pillow()  # noqa: N806
        size, picture = self.shape[1], None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's about large images: they are refused below
                with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as file:
                    width, height = file.size
                    if file.mode[0] in "IF":
                        raise ValueError("it has more than 8 bits a channel")
                    if width * height <= self.pixels and max(width, height) <= 100 * min(width, height):
                        picture = file.convert("RGB")
        except Image.DecompressionBombError:  # larger by far
            pass
        except Exception as error:  # Pillow raises many kinds
            said = "it is none" if isinstance(error, Image.UnidentifiedImageError) else str(error)[:80]
            raise InputError(
                f"Expected a JPEG or PNG image as element {place}, but it cannot be read ({said})."
            ) from None
        if picture is None:
            raise InputError(
                f"Expected an image of at most {self.pixels:,} pixels, no side 100 times the other, but element "
                f"{place} is larger or longer."
            )
        cut = square(picture, size, round(size * 8 / 7))
        return np.asarray(cut).transpose(2, 0, 1)


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError(f"Encoded images need Pillow: {install('data')}.") from error
    return PIL.Image
