"""The entry: adapt(model), or adapt(model, "tent+delta")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from . import methods  # noqa: F401  (they register themselves)
from .adapter import Adapter
from .distributed import Ranks
from .engine.compiling import unwrapped
from .errors import ModelError, SettingError
from .recipe import parse, require_used
from .settings import RECOMMENDED_DEFAULTS, make_settings
from .typed import spelled

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings_typing import SettingsDict

RECOMMENDED = "anchored+mirror+sticky"
WITHOUT_BATCH_NORM = "source+mirror+sticky"
"""What `adapt(model)` does, and what it does where the model has no batch norm."""


def adapt(
    model: nn.Module,
    method: str | None = None,
    preset: str | None = None,
    *,
    source: Iterable[Tensor] | None = None,
    process_group: Any = None,
    extra: Mapping[str, Any] | None = None,
    **settings: Unpack[SettingsDict],
) -> Adapter:
    """Wrap a trained classifier so that it adapts to the stream while it predicts.

    Args:
        model: any classifier that returns logits (B, K). Its batch norm layers are replaced in place until
            `unload`. Of torch.compile(model) the model inside is adapted, and runs compiled.
        method: an objective and its parts in the paper's notation, such as "tent+delta"; `methods()` lists them. None
            takes the one that we recommend for the model.
        preset: the paper's settings for "cifar10-c", "cifar100-c", "imagenet-c", "imagenet-r" or "ytbb-sub". Without
            one, ImageNet-C's apply.
        source: for "eata" alone: images of the training distribution, as the model takes them, in batches (a tensor, or
            a loader of images or of (images, labels)).
        process_group: adapt together with the processes of this group of torch.distributed; `sync=True` takes the
            default group. All of them call the adapter the same number of times.
        extra: settings of components outside of this package, by name. They may also be keywords, of which type
            checkers know only those of this package.
        **settings: of the components and of every method, over the preset's. One that no part of the method uses is an
            error.

    Examples:
        >>> import torch, delta_tta
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
        ...                           torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
        >>> model = delta_tta.adapt(net)
        >>> model(torch.randn(16, 3, 8, 8)).shape
        torch.Size([16, 10])
        >>> model.signals.step
        1
    """
    if not isinstance(model, nn.Module):
        raise ModelError(f"Expected `model` to be a torch.nn.Module, but got {type(model).__name__}.")
    if isinstance(model, Adapter):
        raise ModelError("The model is an adapter already; call unload() on it first.")
    model, wrapper = unwrapped(model)
    given = spelled(settings, extra or {})
    recipe = parse(recommended(model) if method is None else method)
    if process_group is not None:
        if given.get("sync") is False:
            raise SettingError("Expected `sync` not to be False together with a `process_group`.")
        given["sync"] = True
    chosen = make_settings(preset, given, recipe.classes, RECOMMENDED_DEFAULTS if method is None else None)
    require_used(recipe, given)
    ranks = None
    if chosen.sync:
        alone = next((one.name for one in recipe.components if not one.build.synchronises), None)
        if alone is not None:
            raise SettingError(f"'{alone}' cannot be synchronised; leave out `sync`, or choose another method.")
        if wrapper is not None:
            raise ModelError("Expected a model without torch.compile with sync=True; give the one that you compiled.")
        ranks = Ranks(process_group)
        ranks.require_same(f"{recipe} {chosen}", model.state_dict())
    return Adapter(model, recipe, chosen, source, ranks, wrapper)


def recommended(model: nn.Module) -> str:
    """Return the method that `adapt(model)` takes."""
    has_statistics = any(isinstance(m, _BatchNorm) and m.running_mean is not None for m in model.modules())
    return RECOMMENDED if has_statistics else WITHOUT_BATCH_NORM
