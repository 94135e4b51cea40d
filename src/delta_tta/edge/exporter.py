"""Writes a model as an ONNX graph whose norm layers take their statistics as inputs and return those of the batch."""

from __future__ import annotations

import base64
import copy
import itertools
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..adapt import adapt
from ..adapter import Adapter
from ..engine.digests import checksum
from ..errors import InputError, MethodError, ModelError, SettingError, install
from ..guard.blank import has_trained_statistics
from ..guard_limits import Guard
from ..norms.base import AdaptiveNorm, Phase
from ..norms.swap import NormSites
from ..options import AlphaOptions
from ..postprocess.sticky import StickyOptions
from ..recipe import Recipe
from ..rules.shares import SHARES
from ..settings import Settings
from .network import FORMAT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..settings_typing import SettingsDict

ROWS = 4
"""Samples that the graph is traced with: a batch of 1 would be taken for a constant."""
UNSUPPORTED = {"background": False, "episodic": False, "reset_every": None, "sync": False}


class Wires(Phase):
    """What goes into the norm layers of a graph and comes out of them."""

    mean: Tensor
    std: Tensor
    own: Tensor
    rows: Tensor
    places: dict[str, slice]
    ran: list[str]
    measured: dict[str, tuple[Tensor, Tensor]]


class WiredNorm(AdaptiveNorm):
    """Normalises with statistics that are inputs of the graph, and measures each sample.

    μ is `mean` + `own` μ_b and σ is `std` + `own` σ_b, with the statistics of the samples in `rows`; `own` is above
    0 only where averages have not started yet.
    """

    def frozen(self, x: Tensor) -> Tensor:
        """Normalise and measure."""
        wires = self._phase
        assert isinstance(wires, Wires)
        part = x.index_select(0, wires.rows)
        means, variances = part, torch.zeros_like(part)
        if x.dim() > 2:
            values = part.flatten(2)  # (n, C, values)
            means = values.mean(2)
            apart = (values - means.unsqueeze(2)).unsqueeze(2)
            # onnxruntime multiplies a row by its transpose in one pass, and sums squares in two, far slower
            variances = (apart @ apart.transpose(2, 3)).flatten(1) / values.shape[2]
        mean_b = means.mean(0)
        std_b = ((variances + (means - mean_b) ** 2).mean(0) + self.source.eps).sqrt()
        here, started = wires.places[self._name], wires.own <= 0
        mean = torch.where(started, wires.mean[here], wires.mean[here] + wires.own * mean_b)
        std = torch.where(started, wires.std[here], wires.std[here] + wires.own * std_b)
        wires.ran.append(self._name)
        wires.measured[self._name] = means, variances
        return torch.batch_norm(x, self.source.weight, self.source.bias, mean, std * std, False, 0.0, 0.0, False)


class Wired(nn.Module):
    """The network with those inputs and outputs."""

    def __init__(self, model: nn.Module, wires: Wires) -> None:
        super().__init__()
        self.model, self.wires = model, wires

    def forward(
        self, images: Tensor, mean: Tensor, std: Tensor, own: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits, and the means and variances of the samples in `rows`, (n, C of all layers)."""
        wires = self.wires
        wires.mean, wires.std, wires.own, wires.rows = mean, std, own, rows
        wires.ran, wires.measured = [], {}
        logits = self.model(images)
        means, variances = zip(*(wires.measured[name] for name in wires.places if name in wires.measured), strict=True)
        return logits, torch.cat(means, 1), torch.cat(variances, 1)


def export(
    model: nn.Module,
    example: Tensor,
    path: str | Path,
    method: str | None = None,
    **settings: Unpack[SettingsDict],
) -> None:
    """Write a model and its method for `EdgeModel`, which adapts without torch.

    Args:
        model: any classifier that `delta_tta.adapt` takes; it is not changed.
        example: images as the model takes them, (B, C, H, W). Their shape, but for B, is the graph's.
        path: the .onnx file to write.
        method: with anchored or source statistics and without a loss; None takes the recommended one.
        **settings: as in `adapt`.
    """
    if isinstance(model, Adapter):
        raise ModelError("Expected a model, but got an adapter; call unload() on it first, or export a copy.")
    if not isinstance(example, Tensor) or example.dim() < 2 or not len(example):
        came = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise InputError(f"Expected `example` to be a batch of images such as (B, C, H, W), but got {came}.")
    try:
        import onnxscript  # noqa: F401  (torch.onnx needs it)
    except ImportError as error:
        raise ModelError(f"torch.onnx needs onnx and onnxscript: {install('edge')}.") from error
    twin = copy.deepcopy(model)
    adapter = adapt(twin, method, **settings)
    recipe, chosen = adapter.recipe, adapter.settings
    adapter.unload()
    _require_known(recipe, chosen)
    narrow = {p.dtype for p in twin.parameters() if p.is_floating_point()} - {torch.float32}
    if narrow:
        raise ModelError(f"Expected a model in float32, but it has {narrow.pop()}; call model.float() first.")
    rows = example.detach().cpu()[torch.arange(ROWS) % len(example)]
    program, norms = _program(twin.cpu().eval(), rows, recipe, chosen)
    for node in program.model.graph:
        node.metadata_props.clear()  # where in which file of this machine it was written
    program.model.metadata_props["delta_tta"] = json.dumps(
        _description(_digest(model, recipe, chosen), recipe, chosen, norms)
    )
    program.save(str(path))


def _require_known(recipe: Recipe, settings: Settings) -> None:
    if not all(one.on_edge for one in recipe.classes):
        raise MethodError(
            f"Expected a method with anchored or source statistics and without a loss, such as "
            f"'anchored+mirror+sticky', but got '{recipe}': what it does needs torch."
        )
    for name, value in UNSUPPORTED.items():
        if getattr(settings, name) != value:
            raise SettingError(f"Expected `{name}` to be {value!r} on an edge device; leave it out.")
    if settings.update not in ("auto", "every"):
        raise SettingError(f"Expected `update` to be 'auto' or 'every', but got {settings.update!r}.")


def _program(model: nn.Module, rows: Tensor, recipe: Recipe, settings: Settings) -> tuple[Any, list[WiredNorm]]:
    """Trace the model; return the ONNX program and its norm layers in the order of the inputs."""
    batch = {0: torch.export.Dim("batch")}
    wires, sites = Wires(), NormSites(model)
    whole: nn.Module = model
    arguments: tuple[Tensor, ...] = (rows,)
    shapes: tuple[Any, ...] = (batch,)
    outputs = ["logits"]
    norms: list[WiredNorm] = []
    if recipe.renews:
        unknown = next((name for name, layer in sites.originals.items() if layer.running_mean is None), None)
        if unknown is not None:
            raise ModelError(
                f"Expected batch norms with running statistics, but layer {unknown!r} has none to be anchored to; "
                "export with method='source+mirror+sticky'."
            )
        sites.swap(WiredNorm, settings, wires)
        whole = Wired(model, wires)
        ends = list(itertools.accumulate(layer.num_features for layer in sites.originals.values()))
        wires.places = dict(zip(sites.originals, map(slice, [0, *ends], ends), strict=True))
        widths = ends[-1]
        measured = torch.arange(1, ROWS)
        arguments = (rows, torch.zeros(widths), torch.ones(widths), torch.tensor(0.0), measured)
        shapes, outputs = (batch, None, None, None, {0: torch.export.Dim("measured")}), ["logits", "means", "variances"]
        with torch.no_grad():
            whole(*arguments)
        if sorted(wires.ran) != sorted(sites.originals):
            raise ModelError(
                f"Expected the model to run each of its {len(sites.originals)} batch norms once, but it ran "
                f"{len(wires.ran)}, of which {len(set(wires.ran))} differ. Export a model without shared or "
                "idle norm layers."
            )
        norms = [layer for layer in sites.replacements.values() if isinstance(layer, WiredNorm)]
    names = ["images", "mean", "std", "own", "rows"][: len(arguments)]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter itself
        program = torch.onnx.export(
            whole, arguments, input_names=names, output_names=outputs, dynamic_shapes=shapes, dynamo=True, verbose=False
        )
    return program, norms


def _description(model: str, recipe: Recipe, settings: Settings, norms: list[WiredNorm]) -> dict[str, Any]:
    """Return what `EdgeModel` must know besides the graph."""
    guard = Guard() if settings.guard == "on" else settings.guard
    inherited = [pair for norm in norms if (pair := norm.inherited()) is not None]
    return {
        "format": FORMAT,
        "method": str(recipe),
        "model": model,
        "shares": list(SHARES),
        "mirror": recipe.postprocess is not None,
        "filter": settings.options(StickyOptions).filter if recipe.filter is not None else None,
        "alpha": settings.options(AlphaOptions).alpha,
        "collects": settings.update == "auto" and bool(norms),
        "length": settings.length,
        "guard": {"reach": guard.reach, "alike": guard.alike} if isinstance(guard, Guard) else None,
        "channels": [norm.source.num_features for norm in norms],
        "eps": [norm.source.eps for norm in norms],
        "trained": any(has_trained_statistics(norm.source) for norm in norms),
        "mean": _encoded([mean for mean, _ in inherited]),
        "std": _encoded([std for _, std in inherited]),
    }


def _digest(model: nn.Module, recipe: Recipe, settings: Settings) -> str:
    """Return what tells whether a state belongs to a file: of weights, method and settings."""
    content = {**model.state_dict(), "method": str(recipe), "settings": settings.of(recipe.uses)}
    return checksum(content)[:16]


def _encoded(vectors: list[Tensor]) -> str:
    joined = torch.cat(vectors) if vectors else torch.zeros(0)
    return base64.b64encode(joined.float().numpy().astype("<f4").tobytes()).decode()
