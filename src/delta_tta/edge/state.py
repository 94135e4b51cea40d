"""Everything that a stream has taught an edge model: arrays, saved as one .npz file."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import StateError
from ..files import write_whole
from ..rules.answers import MeanAnswers
from ..rules.domain import Domain
from ..rules.filters import Beliefs
from ..rules.shares import SHARES, Memory
from .mirror import Agreement
from .network import Images, Statistics

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class State:
    """What is known after a batch; nothing in it is ever changed.

    Attributes:
        shares: the choice of the share and its evidence.
        averages: μ and σ of every slot but the first and the last, (slots − 2, C) each; None before the first batch.
        agreement: how much mirror images count.
        beliefs: those of the filter.
        kept: samples that wait for an update.
        step: batches answered.
        refused: batches answered and not learnt from, because something is wrong with them.
    """

    shares: Memory = field(default_factory=Memory)
    averages: Statistics | None = None
    agreement: Agreement | None = None
    beliefs: Beliefs = field(default_factory=Beliefs)
    kept: Images | None = None
    step: int = 0
    refused: int = 0

    def arrays(self) -> Arrays:
        """Return all of it as arrays by name."""
        m, b = self.shares, self.beliefs
        found: Arrays = {
            "counts": np.array([self.step, self.refused, m.slot, m.batches, m.due, *m.updates, *m.last]),
            "sums": np.array([m.prior, *m.evidence]),
            "answers": m.answers.sums,
            "levels": m.answers.counts,
            "domain": m.domain.as_array(),
        }
        if self.averages is not None:
            found["mean"], found["std"] = self.averages
        if self.agreement is not None:
            a = self.agreement
            found |= {"agreed": a.agreed, "weighed": a.weighed, "mirrored": np.array([a.batches, a.left])}
        if b.answers.samples:
            found |= {"filter_answers": b.answers.sums, "filter_levels": b.answers.counts}
            found["filter_evidence"] = b.evidence
            found["filter_streams"] = np.array(json.dumps(list(b.beliefs)))
            found["filter_beliefs"] = np.stack(list(b.beliefs.values()))
        if self.kept is not None:
            found["kept"] = self.kept
        return {name: np.array(value) for name, value in found.items()}

    @staticmethod
    def of(arrays: Mapping[str, npt.NDArray[Any]]) -> State:
        """Return the state from such arrays."""
        slots = len(SHARES)
        step, refused, slot, batches, due, *counts = arrays["counts"].tolist()
        prior, *evidence = arrays["sums"].tolist()
        memory = Memory(
            slot=slot,
            batches=batches,
            due=due,
            prior=prior,
            evidence=tuple(evidence),
            updates=tuple(counts[:slots]),
            last=tuple(counts[slots:]),
            domain=Domain.of(arrays["domain"]),
            answers=MeanAnswers(arrays["answers"], arrays["levels"]),
        )
        averages = agreement = None
        beliefs = Beliefs()
        if "mean" in arrays:
            averages = arrays["mean"], arrays["std"]
        if "agreed" in arrays:
            agreement = Agreement(arrays["agreed"], arrays["weighed"], *arrays["mirrored"].tolist())
        if "filter_answers" in arrays:
            names = json.loads(str(arrays["filter_streams"]))
            own = dict(zip(names, arrays["filter_beliefs"], strict=True))
            answers = MeanAnswers(arrays["filter_answers"], arrays["filter_levels"])
            beliefs = Beliefs(answers, arrays["filter_evidence"], own)
        return State(memory, averages, agreement, beliefs, arrays.get("kept"), step, refused)


def save(state: State, model: str, path: str | Path) -> None:
    """Write a state; the file is whole or not there.

    Args:
        state: the state.
        model: the checksum of the model it belongs to.
        path: the .npz file.
    """
    content = io.BytesIO()
    np.savez(content, model=np.array(model), **state.arrays())  # type: ignore[arg-type]  # of keyword arguments
    write_whole(Path(path), lambda file: file.write(content.getvalue()))


def load(model: str, path: str | Path) -> State:
    """Read a state of this model."""
    try:
        with Path(path).open("rb") as raw, np.load(raw) as file:
            arrays = {name: file[name] for name in file.files}
        of = str(arrays.pop("model"))
        state = State.of(arrays)
    except Exception as error:  # numpy and zipfile raise many kinds at a damaged file
        raise StateError(f"Expected a state saved by EdgeModel, but {str(path)!r} is none: {error}.") from error
    if of != model:
        raise StateError(
            f"Expected a state of this model ({model}), but {str(path)!r} was saved for another ({of}); load the "
            "model it belongs to."
        )
    return state
