"""The proving ground: methods over all development networks, corruptions and clean images, streams and batch sizes.

    python benchmarks/proving_ground.py tent+delta recommended --quick
    python benchmarks/proving_ground.py --split validation METHOD ...     to choose; the test corruptions are to report

METHOD is written as for `adapt`; "recommended", the default, is what `adapt(model)` does on each network. Settings may
follow an @, as in "recommended@filter=causal" or "recommended@guard=off". Every cell is compared with Source and with
the paper's tent+delta on the same stream, or with the methods of --against. Prints Markdown, draws a picture, keeps
every run in a store and goes on where it was stopped. `--quick` takes 5 to 15 minutes on two cores, the standard size
up to three hours, `--full` a night. The networks: benchmarks/development.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from cells import chosen, results
from delta_tta.cli.support.execution import ENGINES
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.experiments.experiment import FAMILIES
from development import SIDE, add_folder_option, networks
from proving_cases import DEFAULT, SCALES, cases, takes
from proving_tables import Gain, gains, picture, table

PAPER = "tent+delta"
SPLITS = {"test": (*FAMILIES, *(name for name in TYPES if name not in FAMILIES)), "validation": VALIDATION}


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=[DEFAULT])
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", dest="scale", const="quick", default="standard")
    sizes.add_argument("--full", action="store_const", dest="scale", const="full")
    parser.add_argument("--split", choices=SPLITS, default="test", help="which corruptions (default: test)")
    parser.add_argument("--against", nargs="+", default=[PAPER], metavar="METHOD", help=f"default: {PAPER}")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="only those whose name holds one of these")
    parser.add_argument("--seeds", type=int, help="how many, at most what the size says")
    parser.add_argument("--samples", type=int, help="of each stream, instead of what the size says")
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the images of ImageNet (default: {SIDE})")
    parser.add_argument("--out", type=Path, default=Path("proving-ground.png"), help="the picture")
    parser.add_argument("--store", type=Path, default=Path("proving-ground.db"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--engine", choices=ENGINES, default="local", help="ray: the cluster of RAY_ADDRESS, or a local one"
    )
    add_folder_option(parser)
    return parser.parse_args()


def main() -> None:
    """Run the command."""
    given = options()
    found, missing = networks(given.development, given.side)
    for why in missing:
        print(why, file=sys.stderr)
    found = chosen(found, given.networks)
    scale = SCALES[given.scale]
    if given.seeds:
        scale = dataclasses.replace(scale, seeds=scale.seeds[: given.seeds])
    if given.samples:
        scale = dataclasses.replace(scale, samples=given.samples, single=min(given.samples, scale.single))
    asked = list(cases(found, scale, SPLITS[given.split]))
    lines = list(dict.fromkeys(["source", PAPER, *given.against, *given.methods]))
    wanted = [case.cell(method) for method in lines for case in asked if takes(method, case.network)]
    result = results(wanted, given.store, given.workers, traces=True, engine=given.engine)
    print(f"{len(asked)} cells a method, {given.split} corruptions and clean images, {given.scale} size.")
    shown: dict[str, Sequence[Gain]] = {
        PAPER: gains([case for case in asked if takes(PAPER, case.network)], PAPER, "source", result)
    }
    for method in dict.fromkeys(given.methods):
        own = [case for case in asked if takes(method, case.network)]
        shown[method] = gains(own, method, "source", result)
        print("\n".join(table(method, "Source", shown[method])))
        for other in given.against:
            shared = [case for case in own if takes(other, case.network)]
            if other != method and shared:
                print("\n".join(table(method, other, gains(shared, method, other, result))))
    picture(shown, given.out)
    print(f"\nThe picture: {given.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
