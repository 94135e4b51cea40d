"""Which models cannot be adapted, or not by a method, or not be baked; each error says what to do instead."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from ..errors import MethodError, ModelError, StateError
from ..norms import NormSites
from ..norms.batch import PriorOptions
from ..recipe import EMPTY, SOURCE, Recipe
from ..registry import COMPONENTS
from ..settings import Settings


def check_kind(model: nn.Module, recipe: Recipe) -> None:
    """Raise where the layers of a model, or of a part of it, cannot be replaced because they are layers no more."""
    for name, module in model.named_modules():
        graph = getattr(module, "graph", None) if isinstance(module, torch.fx.GraphModule) else None
        if isinstance(module, torch.jit.ScriptModule):
            # a part without batch norms, such as one that normalises the images, does no harm
            adapts = recipe.renews and _has_statistics(module)
            if name and hasattr(module, "training") and not adapts:
                continue
            what = f"compiled by TorchScript ({type(module).__name__})"
        elif type(module).__module__.startswith("torch.export.") or (
            graph is not None and any(isinstance(node.target, torch._ops.OpOverload) for node in graph.nodes)
        ):
            what = "exported by torch.export"
        else:
            continue
        raise ModelError(
            f"{f'Layer {name!r}' if name else 'The model'} was {what}, so its layers can be neither replaced nor "
            "trained. Give the nn.Module that it was made from; what unload(keep=True) returns can be compiled or "
            "exported again."
        )


def _has_statistics(module: nn.Module) -> bool:
    return any(name.endswith("running_mean") for name, _ in module.named_buffers())


def check_layers(model: nn.Module, recipe: Recipe, sites: NormSites, parameters: dict[str, nn.Parameter]) -> None:
    """Raise where the method needs layers or parameters that the model does not have."""
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in model.parameters()):
        raise ModelError("The model has lazy layers that were never run; run it once before adapting it.")
    if any(p.is_inference() for p in model.parameters()):
        raise ModelError("The model was made under torch.inference_mode() and cannot learn; make it outside.")
    if recipe.needs_batch_norm and not sites.originals:
        trains = recipe.objective is not None and bool(parameters)
        instead = replace(recipe, statistics=EMPTY) if trains else _without_loss(recipe, SOURCE)
        raise ModelError(
            f"Method '{recipe}' renews the statistics of batch norm layers, and the model has none. "
            f"Write '{instead}' instead."
        )
    build = COMPONENTS[recipe.statistics].build
    without = next((name for name, layer in sites.originals.items() if layer.running_mean is None), None)
    if getattr(build, "needs_statistics", False) and without is not None:
        raise ModelError(
            f"Method '{recipe}' starts from the statistics that batch norm layers have kept in training, and layer "
            f"{without!r} has none. Write 'tema' or 'bn' instead."
        )
    if recipe.trains == "norms" and not parameters:
        raise ModelError(
            f"Method '{recipe}' trains the weight and bias of norm layers, and the model has none. "
            f"Write '{_without_loss(recipe, 'tema' if sites.originals else 'source')}' instead, or, if it has norm "
            "layers of another class, name the class to delta_tta.register_norm."
        )
    if recipe.splits_batches and sites.originals:
        raise MethodError(
            f"'{recipe}' makes no sense: '{recipe.postprocess}' runs parts of a batch again, whose own statistics are "
            f"others. Write '{replace(recipe, statistics='tbr')}'."
        )


def check_bakes(recipe: Recipe, settings: Settings) -> None:
    """Raise where no plain model can hold what the method does."""
    if settings.options(PriorOptions).prior > 0:
        raise StateError(
            "A plain BatchNorm cannot mix source and batch statistics as prior > 0 does; "
            "unload() without keep, or adapt with 'tema'."
        )
    outside = next((one.name for one in recipe.components if not one.build.bakes), None)
    if outside is not None:
        raise StateError(
            f"What '{outside}' does to the answers is no part of the model, so a plain model cannot hold it; "
            "unload() without keep, or leave it out of the method."
        )


def _without_loss(recipe: Recipe, statistics: str) -> Recipe:
    return replace(recipe, statistics=statistics, objective=None, reweighting=None)
