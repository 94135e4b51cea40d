"""Which norm layers belong to the last blocks of a model, by their names alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

SHARE = 4
"""One block in so many is a last one, rounded up: `layer4` of ResNets, blocks 9 to 11 of 12."""


def last_blocks(names: Sequence[str]) -> frozenset[str]:
    """Return the norm layers of the last quarter of the blocks, and all behind them, such as the final norm.

    The blocks are the outermost numbered modules with at least half of the layers (`layer1` … `layer4`, `blocks.0` …
    `blocks.11`, `features.0` … `features.7`). In a model without such numbers each norm layer is a block.

    Args:
        names: of all norm layers, in the order of the model.
    """
    blocks = _blocks(names)
    numbers = list(dict.fromkeys(block for block in blocks if block is not None))
    last = set(numbers[-len(numbers) // SHARE :]) if len(numbers) > 1 else set()
    first = next((i for i, block in enumerate(blocks) if block in last), len(names))
    return frozenset(names[first:])


def _blocks(names: Sequence[str]) -> list[str | None]:
    """Return the name of the block that each layer is in; None for layers in no block."""
    paths = [name.split(".") for name in names]
    for depth in range(max(map(len, paths), default=0)):
        series: dict[str, list[str | None]] = {}
        for i, path in enumerate(paths):
            numbered = re.fullmatch(r"(.*?)(\d+)", path[depth]) if depth < len(path) else None
            if numbered is not None:
                stem = ".".join([*path[:depth], numbered[1]])
                series.setdefault(stem, [None] * len(names))[i] = ".".join(path[: depth + 1])
        for blocks in series.values():
            inside = [block for block in blocks if block is not None]
            if 2 * len(inside) >= len(names) and len(set(inside)) > 1:
                return blocks
    return list(names)
