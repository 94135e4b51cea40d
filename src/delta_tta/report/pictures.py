"""Figures, strips and galleries as PNG or SVG; the same values give the same bytes."""

from __future__ import annotations

import base64
import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..files import write_whole
from .charts import draw_figure
from .looks import INK
from .shown import Figure, Gallery, Strips
from .strips import draw_strips

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DPI = 150
FORMATS: dict[str, dict[str, str | None]] = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}}
"""What can be written, and what matplotlib shall not write into it: with it no two runs would be the same."""

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "delta-tta",
    "text.parse_math": False,  # a $ in a name is a $
    "figure.constrained_layout.w_pad": 0.08,
    "figure.constrained_layout.h_pad": 0.07,
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titlepad": 8,
    "xtick.color": "#999999",
    "ytick.color": "#999999",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def picture_suffix(path: Path) -> str:
    """Return the suffix of a picture; raise where it is none that can be written."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"A picture is written as {' or '.join(FORMATS)}, and {path.name!r} is neither.")
    return path.suffix.lower()


def draw(exhibit: Figure | Strips | Gallery, path: Path) -> None:
    """Write a figure, strips or a gallery as the path's suffix says, .png or .svg; without its note."""
    suffix = picture_suffix(path)
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user has set for other pictures
        matplotlib.rcParams.update(STYLE)
        if isinstance(exhibit, Figure):
            canvas = draw_figure(exhibit)
        else:
            canvas = draw_strips(exhibit) if isinstance(exhibit, Strips) else _gallery(exhibit)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda f: canvas.savefig(f, dpi=DPI, format=suffix[1:], metadata=FORMATS[suffix]))


def _gallery(gallery: Gallery) -> Canvas:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.image import imread

    columns = min(5, len(gallery.pictures))
    rows = -(-len(gallery.pictures) // columns)
    canvas = Canvas(figsize=(1.9 * columns, 2.2 * rows + 0.6), layout="constrained")
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture in zip(grid.flat, gallery.pictures, strict=False):
        axes.imshow(imread(io.BytesIO(base64.b64decode(picture.png))), interpolation="nearest")
        axes.set_title(picture.label, fontsize=10)
    canvas.suptitle(textwrap.fill(gallery.title, 17 * columns), fontsize=12, fontweight="bold")
    return canvas
