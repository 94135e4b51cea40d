"""The model under adaptation: what is swapped, frozen and trained in it, and how it gets its own self back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakSet, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..distributed import Ranks
from ..errors import InputError, ModelError
from ..norms import AdaptiveNorm, NormSites, Phase
from ..norms.others import in_float32, laid_out, other_norms
from ..recipe import Recipe
from ..registry import COMPONENTS
from ..settings import Settings
from ..tensors import at_least_float32, changed_since, follow
from .compiling import CompiledRun
from .digests import architecture
from .layout import Layout
from .memory import LowMemory
from .model_checks import check_kind, check_layers

_adapted: WeakSet[nn.Module] = WeakSet()
_alive: WeakValueDictionary[int, AdaptedModel] = WeakValueDictionary()


class AdaptedModel:
    """Owns the swapped layers and the trained parameters, and remembers the source."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        settings: Settings,
        ranks: Ranks | None = None,
        wrapper: nn.Module | None = None,
    ) -> None:
        check_kind(model, recipe)
        if model in _adapted:
            raise ModelError("The model is being adapted already; call unload() on its adapter first.")
        self.model = model
        self._settings = settings
        self.phase = Phase()
        self.phase.ranks = ranks
        self._sites = NormSites(model)
        self.parameters = _declared_parameters(model, recipe, self._sites)
        check_layers(model, recipe, self._sites, self.parameters)
        self.architecture = architecture(model)

        self._training = {module: module.training for module in model.modules()}
        self._requires_grad = {p: p.requires_grad for p in model.parameters()}
        for other in _others():  # around a part of the model, or around more of it: it has changed these flags
            self._training.update({m: mode for m, mode in other._training.items() if m in self._training})
            self._requires_grad.update({p: on for p, on in other._requires_grad.items() if p in self._requires_grad})
        self._types = {name: p.dtype for name, p in self.parameters.items()}
        self._source = {name: p.detach().clone() for name, p in self.parameters.items()}
        if recipe.renews:
            kind = (
                COMPONENTS[recipe.statistics].build
                if recipe.standalone is None
                else COMPONENTS[recipe.standalone].build.layers
            )
            self._sites.swap(kind, settings, self.phase)
        _adapted.add(model)
        _alive[id(self)] = self
        self.layout = Layout(model, settings.layout, self.parameters.values())
        self._wide = recipe.trains == "norms"
        self._casts: list[RemovableHandle] = []
        group_norms = (m for m in model.modules() if isinstance(m, nn.GroupNorm) and self.parameters)
        self._layouts = [laid_out(layer) for layer in group_norms]
        try:
            trained = {p for one in _others() for p in one.parameters.values()}
            for p in self._requires_grad:
                p.requires_grad_(p in trained)
            self._widen({name: p.detach() for name, p in self.parameters.items()})
        except BaseException:
            self.unload(keep=False)
            raise
        self._modules = list(model.modules())
        compiles = settings.compile or wrapper is not None
        self._plain: Callable[[Tensor], object] = LowMemory(model) if settings.memory == "low" else model
        self._run = CompiledRun(model, wrapper) if compiles else self._plain
        self._writes = False  # whether the model changes its input in place
        self._looked: set[bool] = set()  # whether that was looked at with gradients, and without
        self.overwritten: str | None = None  # the name of a norm layer whose input the model changes afterwards

    @property
    def norms(self) -> dict[str, AdaptiveNorm]:
        """The layers that stand in for the model's batch norms, by name."""
        return self._sites.replacements

    def __call__(self, x: Tensor) -> object:
        """Run the model in eval mode, whatever mode a user left it in: dropout stays off."""
        if any(module.training for module in self._modules):
            self.model.eval()
        x = self.layout(x)
        if self._writes or x.is_inference():  # such tensors do not count how often they were changed
            return self._run(x.clone())
        if torch.is_grad_enabled() not in self._looked:
            return self._run_first(x)
        before = x._version
        y = self._run(x)
        if x._version != before:
            self._writes = True
            raise InputError(
                "The model changed this batch in place, which it had not done before, so it cannot be run on it again. "
                "Nothing was learnt from it. From now on the model gets a copy each time: give the batch once more, as "
                "it was; or let the model copy its input before it changes it."
            )
        return y

    def _run_first(self, x: Tensor) -> object:
        """Run the model on a copy, and look at what it does to its own tensors and layers."""
        copy = x.clone()
        untouched = copy._version
        met: list[tuple[str, Tensor, int | None]] = []
        self.phase.met = met if self.parameters else None  # without a gradient nobody needs the features afterwards
        try:
            with self._sites.must_be_reached():
                y = self._plain(copy)
        finally:
            self.phase.met = None
        self._writes = copy._version != untouched or not torch.equal(copy, x)  # changes through .data are not counted
        changed = (name for name, features, before in met if changed_since(features, before))
        self.overwritten = self.overwritten or next(changed, None)
        self._looked.add(torch.is_grad_enabled())
        return y

    @property
    def source(self) -> dict[str, Tensor]:
        """The trained parameters as they were at first, by name."""
        return self._source

    @contextmanager
    def wearing(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the model run with other values of the trained parameters; nothing is copied."""
        own = {name: p.data for name, p in self.parameters.items()}
        remembers = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)  # it would answer with casts of other parameters
        try:
            for name, p in self.parameters.items():
                p.data = values[name].to(p)
            yield
        finally:
            torch.set_autocast_cache_enabled(remembers)
            for name, p in self.parameters.items():
                p.data = own[name]

    def discard(self) -> None:
        """Forget what the layers observed and not committed."""
        self.phase.labels = None
        for norm in self.norms.values():
            norm.discard()

    def reset(self) -> None:
        """Bring back the source bit for bit."""
        self.untrain()
        for norm in self.norms.values():
            norm.reset()

    @torch.no_grad()
    def untrain(self) -> None:
        """Bring back the source's parameters; the layers' statistics stay."""
        for name, p in self.parameters.items():
            p.copy_(self._source[name])

    def unload(self, keep: bool) -> nn.Module:
        """Give the model back with its own layers: as the source, or with what was learnt, in eval mode."""
        if not keep:
            self.reset()
        for name, p in self.parameters.items():
            _give(p, p.data.to(self._types[name]))
        self._narrow()
        for hook in self._layouts:
            hook.remove()
        self.layout.restore()
        if keep:
            self._sites.bake()
        self._sites.restore()
        _adapted.discard(self.model)
        _alive.pop(id(self), None)
        still = {p: False for one in _others() for p in one._requires_grad}
        still.update({p: True for one in _others() for p in one.parameters.values()})
        for p, flag in self._requires_grad.items():
            p.requires_grad_(still.get(p, flag))
        for module, training in self._training.items():
            module.training = training and not keep
        return self.model

    def move(self, fn: Callable[[Tensor], Tensor], move_modules: Callable[[], object]) -> None:
        """Let the modules be moved by fn, and keep the digits that half precision would cost γ and β."""
        before = {name: p.detach() for name, p in self.parameters.items()}
        move_modules()
        self._types = {name: fn(torch.empty(0, dtype=dtype)).dtype for name, dtype in self._types.items()}
        self._widen({name: follow(fn, p) for name, p in before.items()})
        self._source = {name: self._source[name].to(p.device) for name, p in self.parameters.items()}

    def _widen(self, values: dict[str, Tensor]) -> None:
        """Train γ and β in float32 at least: in half precision a small step is no step."""
        if not self._wide:
            return
        for name, p in self.parameters.items():
            _give(p, at_least_float32(values[name]))
        self._narrow()
        types = {p: self._types[name] for name, p in self.parameters.items()}
        for layer in other_norms(self.model).values():  # our layers in the place of batch norms do so by themselves
            narrow = {types[p] for p in layer.parameters(recurse=False) if p in types} & {torch.float16, torch.bfloat16}
            for dtype in narrow:
                self._casts += in_float32(layer, dtype)

    def _narrow(self) -> None:
        for cast in self._casts:
            cast.remove()
        self._casts = []


def _others() -> list[AdaptedModel]:
    """Return all that have not been unloaded."""
    return [one for ref in _alive.valuerefs() if (one := ref()) is not None]


def _give(p: nn.Parameter, value: Tensor) -> None:
    """Give a parameter another value, perhaps of another type; a gradient that a user left there gets that type."""
    own, p.grad = p.grad, None
    p.data = value
    p.grad = None if own is None else own.to(value.dtype)


def _declared_parameters(model: nn.Module, recipe: Recipe, sites: NormSites) -> dict[str, nn.Parameter]:
    """γ and β of the batch norms; of the other norm layers where no batch norm has any; or all parameters."""
    if recipe.trains == "nothing":
        return {}
    if recipe.trains == "all":
        return {name: p for name, p in model.named_parameters() if p.requires_grad and p.is_floating_point()}
    layers: Mapping[str, nn.Module] = sites.originals if _own_parameters(sites.originals) else other_norms(model)
    if recipe.objective is not None:
        train = [name for name, m in layers.items() if any(True for _ in m.parameters(recurse=False))]
        fixed = COMPONENTS[recipe.objective].build.fixed(train)
        layers = {name: layers[name] for name in train if name not in fixed}
    return _own_parameters(layers)


def _own_parameters(layers: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    named = [
        (f"{name}.{part}".lstrip("."), p) for name, m in layers.items() for part, p in m.named_parameters(recurse=False)
    ]
    first_names = {p: name for name, p in reversed(named)}  # layers may share a parameter
    return {name: p for name, p in named if first_names[p] == name}
