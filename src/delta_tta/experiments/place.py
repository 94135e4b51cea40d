"""On what experiments run: images and a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from ..data.sources import how_to_get
from ..errors import InputError, SettingError, nearest
from ..normalization import Normalisation

Kind = Literal["demo", "cifar", "cifar-c", "imagenet-c", "imagenet-r", "folder", "video"]
USUAL: Mapping[Kind, str | None] = {
    "demo": "cifar10-c", "cifar": "cifar100-c", "cifar-c": "cifar100-c", "imagenet-c": "imagenet-c",
    "imagenet-r": "imagenet-r", "video": "ytbb-sub", "folder": None,
}  # fmt: skip
"""The preset that goes with a kind of data."""


@dataclass(frozen=True)
class Place:
    """On what an experiment runs: images and a model.

    Attributes:
        data: "demo" (the embedded images); "cifar" and "folder", clean images that are corrupted on the fly; "cifar-c"
            and "imagenet-c", corrupted ones; "imagenet-r"; "video", a manifest of frames.
        path: where the images are.
        model: see `delta_tta.models.load`.
        weights: of the model, see `delta_tta.models.load`.
        preset: the paper's settings for a data set; "auto" takes those that go with the data.
        images: how many of the images, equally many of each class; None for all.
        clean: where clean images are, for "cifar-c" and "imagenet-c", whose own are all corrupted.
        mean: of the input channels, 0 to 1, where the model does not say how it wants its inputs; with `std`.
        std: of the input channels, like `mean`.
    """

    data: Kind = "demo"
    path: str | None = None
    model: str = "resnet20-cifar10"
    weights: str | None = None
    preset: str | None = "auto"
    images: int | None = None
    clean: str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("path", "model", "weights", "clean"):
            if "\0" in str(getattr(self, name)):
                raise SettingError(f"Expected `{name}` to be a name or a path, but got {getattr(self, name)!r}.")
        self._take_scale()
        if self.data not in get_args(Kind):
            raise SettingError(f"Unknown data {self.data!r}.{nearest(str(self.data), get_args(Kind))}")
        if self.preset == "auto":
            object.__setattr__(self, "preset", USUAL[self.data])
        if (self.path is None) != (self.data == "demo"):
            raise SettingError(
                f"Expected no `path` for the embedded images; say what is at {self.path} with `data`, such as 'cifar'."
                if self.path
                else f"Expected `path`, where the data {self.data!r} is, but there is none. {how_to_get(self.data)}"
            )
        if self.clean is not None and self.data not in ("cifar-c", "imagenet-c"):
            raise SettingError(f"Expected `clean` for 'cifar-c' and 'imagenet-c' alone, but the data is {self.data!r}.")
        if self.images is not None and (not isinstance(self.images, int) or self.images < 1):
            raise SettingError(f"Expected `images` to be an integer of at least 1, but got {self.images!r}.")

    def _take_scale(self) -> None:
        """Check `mean` and `std`, which may come as lists, from a file."""
        if (self.mean is None) != (self.std is None):
            raise SettingError("Expected both `mean` and `std` of the input channels, or neither.")
        if self.mean is None or self.std is None:
            return
        try:
            scale = Normalisation(self.mean, self.std)
        except (InputError, TypeError, ValueError):
            raise SettingError(
                f"Expected three numbers as `mean` and three above 0 as `std`, but got {self.mean!r} and {self.std!r}."
            ) from None
        object.__setattr__(self, "mean", scale.mean)
        object.__setattr__(self, "std", scale.std)
