"""How long the paper's ImageNet-C experiments take on 1, 8 and 64 GPUs: a calculation, not a measurement.

python benchmarks/estimate.py [--images-per-second 2500]

Takes what each method costs relative to plain eval from docs/methods/index.md (measured there on a CPU; on a GPU it may
differ), and a speed of plain eval that you give: 2,500 images a second is our guess for ResNet-50 on one recent GPU.
50,000 images × 15 corruptions × 4 seeds × the 8 streams of tables 4 to 6 (TTA and MEMO: IS+CB alone). Cells are
independent, so GPUs divide the time as long as there are many more cells than GPUs and files arrive as fast as they are
read. CoTTA* goes through all corruptions in one cell, so that its 32 cells keep at most 32 GPUs busy.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

TABLE = Path(__file__).parents[1] / "docs" / "methods" / "index.md"
FIELD = {
    "source": ("source", 8), "bn": ("bn", 8), "eta": ("eta", 8), "lame": ("lame", 8), "cotta": ("cotta", 8),
    "cotta*": ("cotta", 8), "pl": ("tent", 8), "pl+delta": ("pl+delta", 8), "tent": ("tent", 8),
    "tent+delta": ("tent+delta", 8), "ent-w": ("tent", 8), "ent-w+delta": ("ent-w+delta", 8), "tta": ("tta", 1),
    "memo": ("memo", 1),
}  # fmt: skip
"""Method → (whose row of the table to take, streams)."""
MORE = {"tta": 2, "memo": 2}
"""On ImageNet these make 64 copies, twice the 32 of the table."""
IMAGES = 50_000 * 15 * 4


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}" if seconds < 360_000 else f"{seconds / 3600:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images-per-second", type=float, default=2500)
    args = parser.parse_args()
    rows = re.findall(r"^\| ([\w+-]+) \| ([\d.]+) \| \d+ \|$", TABLE.read_text(encoding="utf-8"), re.M)
    ratio = {name: float(value) for name, value in rows}
    print("| method | / plain eval | streams | 1 GPU, h | 8 GPUs, h | 64 GPUs, h |\n|---|---|---|---|---|---|")
    total = 0.0
    for method, (row, streams) in FIELD.items():
        cost = ratio[row] * MORE.get(method, 1)
        seconds = IMAGES * streams * cost / args.images_per_second
        total += seconds
        most = 4 * streams if method == "cotta*" else 64
        times = [seconds / min(n, most) for n in (1, 8, 64)]
        print(f"| {method} | {cost:.2f} | {streams} | {' | '.join(map(hours, times))} |")
    print(f"| all | | | {' | '.join(hours(total / n) for n in (1, 8, 64))} |")


if __name__ == "__main__":
    main()
