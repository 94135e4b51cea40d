"""The model under adaptation: what is swapped, frozen and trained in it, and how it gets its own self back."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .errors import ModelError
from .norms import AdaptiveNorm, NormSites, Phase
from .recipe import Recipe
from .settings import Settings
from .words import WORDS

OTHER_NORMS = (nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


class Subject:
    """Owns the swapped layers and the trained parameters, and remembers the source."""

    def __init__(self, model: nn.Module, recipe: Recipe, settings: Settings) -> None:
        self.model = model
        self.phase = Phase()
        self._sites = NormSites(model)
        self.parameters = _declared_parameters(model, recipe, self._sites)
        _check(model, recipe, self._sites, self.parameters)

        self._training = {module: module.training for module in model.modules()}
        self._requires_grad = {p: p.requires_grad for p in model.parameters()}
        self.source = {name: p.detach().clone() for name, p in self.parameters.items()}
        if recipe.statistics != "source":
            self._sites.swap(WORDS[recipe.statistics].build, settings, self.phase)
        model.requires_grad_(False)
        for p in self.parameters.values():
            p.requires_grad_(True)
        self._modules = list(model.modules())

    @property
    def norms(self) -> dict[str, AdaptiveNorm]:
        """The layers that stand in for the model's batch norms, by name."""
        return self._sites.replacements

    def __call__(self, x: Tensor) -> object:
        """Run the model in eval mode, whatever mode a user left it in: dropout stays off."""
        if any(module.training for module in self._modules):
            self.model.eval()
        return self.model(x)

    def discard(self) -> None:
        """Forget what the layers observed and not committed."""
        for norm in self.norms.values():
            norm.discard()

    def reset(self) -> None:
        """Bring back the source bit for bit."""
        with torch.no_grad():
            for name, p in self.parameters.items():
                p.copy_(self.source[name])
        for norm in self.norms.values():
            norm.reset()

    def unload(self, keep: bool) -> nn.Module:
        """Give the model back with its own layers: as the source, or with what was learnt, in eval mode."""
        if keep:
            self._sites.bake()
        else:
            self.reset()
        self._sites.restore()
        for p, flag in self._requires_grad.items():
            p.requires_grad_(flag)
        for module, training in self._training.items():
            module.training = training and not keep
        return self.model


def _declared_parameters(model: nn.Module, recipe: Recipe, sites: NormSites) -> dict[str, nn.Parameter]:
    """γ and β of the batch norms; of the other norm layers where the model has no batch norm."""
    if recipe.objective is None:
        return {}
    layers: dict[str, nn.Module] = {**sites.originals}
    if not layers:
        layers = {name: m for name, m in model.named_modules() if isinstance(m, OTHER_NORMS)}
    return {f"{name}.{part}": p for name, m in layers.items() for part, p in m.named_parameters(recurse=False)}


def _check(model: nn.Module, recipe: Recipe, sites: NormSites, parameters: dict[str, nn.Parameter]) -> None:
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ModelError("The model has lazy layers that were never run; run it once before adapting it.")
    if any(p.is_inference() for p in model.parameters()):
        raise ModelError("The model was made under torch.inference_mode() and cannot learn; make it outside.")
    needs_batch_norm = recipe.statistics not in ("source", "bn") or recipe.statistics == str(recipe) == "bn"
    if needs_batch_norm and not sites.originals:
        dot = "+dot" if recipe.reweighting == "dot" else ""
        instead = f"{recipe.objective}{dot}" if recipe.objective and parameters else "source"
        raise ModelError(
            f"Method '{recipe}' renews the statistics of batch norm layers, and the model has none. "
            f"Write '{instead}' instead."
        )
    if recipe.objective is not None and not parameters:
        raise ModelError(
            f"Method '{recipe}' trains the weight and bias of norm layers, and the model has none. "
            f"Write '{'tema' if sites.originals else 'source'}' instead."
        )
