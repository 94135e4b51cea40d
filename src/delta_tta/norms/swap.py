"""Find the norm layers of a model, put adaptive ones in their place, and put the originals back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import ModelError
from ..settings import Settings
from . import others
from .base import AdaptiveNorm, Phase, Tail

_TAILS: dict[type, Tail | None] = {_BatchNorm: None, nn.SyncBatchNorm: None}


def register_norm(kind: type[nn.Module], tail: Tail | None = None) -> None:
    """Teach delta-tta a norm layer that it does not know.

    A BatchNorm subclass that overrides forward is replaced like other batch norms. A layer of any other class stays,
    and its own parameters train in models without batch norm.

    Args:
        kind: its class.
        tail: for a BatchNorm subclass, what its forward does after normalising, called with the layer and the
            normalised features; None if nothing.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ModelError(f"Expected a subclass of torch.nn.Module, but got {kind!r}.")
    if issubclass(kind, _BatchNorm):
        _TAILS[kind] = tail
    elif tail is not None:
        raise ModelError(f"{kind.__name__} is no BatchNorm, so its layers stay in the model; leave out `tail`.")
    elif kind not in others.KINDS:
        others.KINDS.append(kind)


def _drop_and_activate(layer: Any, y: Tensor) -> Tensor:
    activated: Tensor = layer.act(layer.drop(y))
    return activated


def _tail_of(name: str, layer: _BatchNorm) -> Tail | None:
    """The first class that writes `forward` decides what happens after normalising."""
    if "forward" in vars(layer):
        raise ModelError(
            f"Layer {name!r}, a {type(layer).__name__}, has a forward that was set on the object, and the layer in its "
            "place would not run it. Delete it (del layer.forward), or write a subclass with that forward and tell "
            "delta_tta.register_norm what it does after normalising."
        )
    for kind in type(layer).__mro__:
        if kind in _TAILS:
            return _TAILS[kind]
        if kind.__module__.startswith("timm.") and kind.__name__ in ("BatchNormAct2d", "SyncBatchNormAct"):
            return _drop_and_activate
        if "forward" in vars(kind):
            break
    raise ModelError(
        f"Layer {name!r} is a {type(layer).__name__}, a BatchNorm that overrides forward and that delta-tta does not "
        "know. Say what it does after normalising: delta_tta.register_norm(TheClass, lambda layer, y: ...)."
    )


def _passed_by(what: str, *_: object) -> NoReturn:
    raise ModelError(
        f"The model does not run what was put in the place of {what}: it keeps the original elsewhere, such as in a "
        "Python list, or normalises with a function. Let its forward call its norm layers by name (self.bn1), or "
        "from an nn.ModuleList or nn.Sequential."
    )


class NormSites:
    """The places in a model where a batch norm stands, by name; one layer in two places is one site."""

    def __init__(self, model: nn.Module) -> None:
        self.originals: dict[str, _BatchNorm] = {}
        self._places: dict[str, list[tuple[nn.Module, str]]] = {}
        self.replacements: dict[str, AdaptiveNorm] = {}
        self._made: dict[type[AdaptiveNorm], dict[str, AdaptiveNorm]] = {}
        names: dict[int, str] = {}
        if isinstance(model, _BatchNorm):
            raise ModelError("The model is a norm layer itself, which cannot be replaced; put it into nn.Sequential.")
        for path, parent in model.named_modules():
            for child_name, child in parent._modules.items():  # named_children() would hide a second place
                if isinstance(child, AdaptiveNorm):
                    raise ModelError("The model is being adapted already; call unload() on its adapter first.")
                if isinstance(child, _BatchNorm):
                    name = names.setdefault(id(child), f"{path}.{child_name}".lstrip("."))
                    self.originals[name] = child
                    self._places.setdefault(name, []).append((parent, child_name))

    def swap(self, kind: type[AdaptiveNorm], settings: Settings, phase: Phase) -> None:
        """Replace every batch norm by a layer that has seen nothing; on any error the model is as it was."""
        if kind not in self._made:
            self._made[kind] = self._make(kind, settings, phase)
        for name, layer in self._made[kind].items():  # the same ones each time: a compiled model knows them
            layer.reset()
            self._put(name, layer)
        self.replacements = self._made[kind]

    def _make(self, kind: type[AdaptiveNorm], settings: Settings, phase: Phase) -> dict[str, AdaptiveNorm]:
        layers = {name: kind(layer, _tail_of(name, layer), settings, phase) for name, layer in self.originals.items()}
        for place, (name, layer) in enumerate(layers.items()):
            layer._name, layer._place = name, place
            for attribute, hooks in vars(self.originals[name]).items():
                if attribute.startswith(("_forward_hooks", "_forward_pre_hooks")):
                    setattr(layer, attribute, hooks)  # shared: a user's hooks go on working, and can be removed
        return layers

    @contextmanager
    def must_be_reached(self) -> Iterator[None]:
        """Raise if a run of the model passes by our layers."""
        originals = {name: self.originals[name] for name in self.replacements}
        for name, layer in originals.items():
            layer.forward = functools.partial(_passed_by, f"layer {name!r}")  # type: ignore[method-assign]
        try:
            yield
        finally:
            for layer in originals.values():
                del layer.forward
        if originals and not next(iter(self.replacements.values()))._phase.reached:
            _passed_by("its batch norms")

    def restore(self) -> None:
        """Put the original layers back."""
        for name in self.replacements:
            self._put(name, self.originals[name])
        self.replacements = {}

    def bake(self) -> None:
        """Give the original layers the statistics that the adaptive ones answer with."""
        for name, layer in self.replacements.items():
            statistics, original = layer.baked(), self.originals[name]
            if statistics is None:
                original.running_mean = original.running_var = original.num_batches_tracked = None
                original.track_running_stats = False
            else:
                mean, var = statistics
                like = next((t for t in (original.weight, original.running_mean) if t is not None), mean)
                original.running_mean, original.running_var = mean.to(like.dtype), var.to(like.dtype)
                original.track_running_stats = True

    def _put(self, name: str, layer: nn.Module) -> None:
        for parent, child_name in self._places[name]:
            setattr(parent, child_name, layer)
