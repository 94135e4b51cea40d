"""Cells of the laboratory, run for a benchmark and kept in a store."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from delta_tta.cli.support.execution import engine_maker
from delta_tta.corruptions.constants import VALIDATION
from delta_tta.experiments.cell import CLEAN, Cell
from delta_tta.experiments.evaluate import Result
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import Plan, RunProgress, default_cache, run
from delta_tta.experiments.store import Store
from delta_tta.streams import StreamSpec
from development import Network, add_folder_option, networks


def with_seed(cell: Cell, seed: int) -> Cell:
    """Return the cell on the stream of another seed."""
    return dataclasses.replace(cell, stream=dataclasses.replace(cell.stream, seed=seed))


def results(
    cells: Sequence[Cell], path: Path, workers: int, traces: bool = False, engine: str = "local"
) -> Callable[[Cell], Result]:
    """Run what is missing in the store, in so many processes or on a Ray cluster; return how to ask for a result.

    With `traces` a result holds what was predicted for each sample.
    """
    lab = Lab(default_cache())
    plan, said = Plan.of(list(dict.fromkeys(cells)), lab), 0

    def show(progress: RunProgress) -> None:
        nonlocal said
        if progress.done >= said + 20:
            said = progress.done
            print(f"{progress.done} of {progress.total} cells", file=sys.stderr, flush=True)

    with Store(path) as store:
        progress = run(plan, store, engine_maker(engine, lab.cache, workers)(), show)
        if progress.failed:
            sys.exit("\n".join(progress.failed.values()))
        found = {key: result for key, _, result in store.results(plan.cells)}
        if traces:
            found = {key: dataclasses.replace(result, trace=store.trace(key)) for key, result in found.items()}
    return lambda cell: found[plan.keys[cell]]


def cell_of(network: Network, corruption: str, stream: StreamSpec, samples: int, method: str = "source") -> Cell:
    """Return one stream on one network, in batches of 64."""
    few = network.few if stream.dependent or stream.imbalanced else None
    return Cell(few or network.place, method, stream, (corruption,), batch_size=64, samples=samples)


def options(words: str | None, samples: int, about_samples: str | None = None) -> argparse.ArgumentParser:
    """Return a parser that knows --networks, --samples and --development.

    Args:
        words: the docstring of the program.
        samples: how many of each stream, if nothing is said.
        about_samples: what the help says of them.
    """
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="only those whose name holds one of these")
    parser.add_argument("--samples", type=int, default=samples, help=about_samples)
    add_folder_option(parser)
    return parser


def cell_options(words: str | None, samples: int) -> argparse.ArgumentParser:
    """Return the parser of `options` that knows --corruptions too, for `chosen_cells`."""
    parser = options(words, samples)
    parser.add_argument("--corruptions", nargs="+", metavar="NAME", help="only these; 'none' for clean images")
    return parser


def chosen(found: Sequence[Network], names: Sequence[str] | None) -> list[Network]:
    """Return the networks of these names, or else whose name holds one of them; None for all."""
    if names is None:
        return list(found)
    exact = {one.name.lower() for one in found}
    asked = [name.lower() for name in names]
    return [
        one
        for one in found
        if any(name == one.name.lower() or (name not in exact and name in one.name.lower()) for name in asked)
    ]


def batch_norm_networks(given: argparse.Namespace) -> list[Network]:
    """Return the networks with batch norm that the options choose."""
    return chosen([one for one in networks(given.development)[0] if one.norm == "batch"], given.networks)


def chosen_cells(given: argparse.Namespace) -> Iterator[tuple[Network, str, StreamSpec]]:
    """Yield the validation cells that `cell_options` choose, on networks with batch norm."""
    for network, corruption, stream in validation_cells(batch_norm_networks(given)):
        if not given.corruptions or corruption in given.corruptions:
            yield network, corruption, stream


def validation_cells(found: Sequence[Network]) -> Iterator[tuple[Network, str, StreamSpec]]:
    """Yield a shuffled and a dependent stream of each validation corruption, and of clean images, on each network."""
    for network in found:
        for corruption in (*VALIDATION, CLEAN):
            for stream in (StreamSpec("IS+CB"), StreamSpec("DS+CB", rho=0.1)):
                yield network, corruption, stream
