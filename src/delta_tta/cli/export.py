"""delta-tta export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .support import completion
from .support.console import Json, consoles, print_json

EXAMPLES = """
Examples:
  delta-tta export resnet20-cifar10 model.onnx
  delta-tta export torchvision:resnet50 model.onnx --size 224
  delta-tta export wrn40-2 model.onnx --weights wrn40-2.safetensors --method anchored+sticky
"""


def export(
    model: Annotated[str, typer.Argument(autocompletion=completion.model, help="See delta_tta.models.load.")],
    out: Annotated[Path, typer.Argument(help="The .onnx file to write.")],
    method: Annotated[str | None, typer.Option(help="Without a loss. Default: the recommended one.")] = None,
    weights: Annotated[str | None, typer.Option(help="A .safetensors file or torch checkpoint.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Height and width of the images.")] = 32,
    as_json: Json = False,
) -> None:
    """Write a model for devices without torch: an ONNX file that adapts with delta_tta.edge.EdgeModel.

    EdgeModel takes images that are scaled and normalised as the network was trained.
    """
    import torch

    from .. import models
    from ..edge import EdgeModel
    from ..edge import export as write

    named = models.load(model, weights)
    write(named.model, torch.zeros(2, 3, size, size), out, method)
    written = EdgeModel(out)
    scale = named.normalisation
    if as_json:
        found = {"out": str(out), "model": named.name, "method": written.method, "bytes": out.stat().st_size}
        print_json({**found, "mean": scale.mean, "std": scale.std})
        return
    consoles()[0].print(
        f"{out}: {named.name} with {written.method}, {out.stat().st_size / 1e6:.1f} MB; images {size} × {size}, "
        f"normalised with mean {scale.mean} and std {scale.std}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
