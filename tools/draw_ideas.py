"""Draw what each part of the recommended method does to the answers along one stream: docs/pictures/ideas.png.

python tools/draw_ideas.py [OUT]
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap

import delta_tta
from delta_tta import data, models
from delta_tta.streams import stream

METHODS = ("source", "tent", "tent+delta", "anchored", "anchored+mirror", "anchored+mirror+sticky")
SAMPLES, BATCH = 1000, 64
OUT = Path(__file__).parents[1] / "docs" / "pictures" / "ideas.png"


def main() -> None:
    """Run the command."""
    images = data.Corrupted(data.Subset(data.demo(), SAMPLES), "motion_blur", severity=5)
    order = list(stream(images.labels, "DS+CB", rho=0.1, seed=2020))
    truth, rows, shares = images.labels[order], {}, []
    for method in METHODS:
        named = models.load("resnet20-cifar10")
        model = delta_tta.adapt(named.model, method, "cifar10-c")
        said = []
        for batch, _ in images.batches(order, BATCH):
            said.append(model(named.normalisation(batch)).argmax(1))
            if method == METHODS[-1]:
                shares += [model.signals.share] * len(batch)
        rows[method] = torch.cat(said).numpy()

    colours = ListedColormap(plt.get_cmap("tab10").colors)
    heights = [1] * (1 + len(METHODS)) + [1.6]
    figure, axes = plt.subplots(len(heights), 1, figsize=(9, 5.2), sharex=True, height_ratios=heights)
    strips = {"the true classes": truth, **rows}
    for axis, (name, labels) in zip(axes, strips.items(), strict=False):
        axis.imshow(np.asarray(labels)[None], aspect="auto", cmap=colours, vmin=0, vmax=9, interpolation="nearest")
        right = "" if name not in rows else f"\n{100 * (labels == truth).mean():.0f} % right"
        axis.set_ylabel(name + right, rotation=0, ha="right", va="center", fontsize=9)
        axis.set_yticks([])
    axes[-1].step(range(len(shares)), shares, where="post", color="0.2")
    axes[-1].set_ylim(-0.1, 1)
    axes[-1].set_yticks([0, 0.5, 1])
    axes[-1].set_ylabel("share m of the\nstream's statistics", rotation=0, ha="right", va="center", fontsize=9)
    axes[-1].set_xlabel("samples, in the order of time; a colour is a class")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(h_pad=0.3)
    figure.savefig(sys.argv[1] if len(sys.argv) > 1 else OUT, dpi=130)


if __name__ == "__main__":
    main()
