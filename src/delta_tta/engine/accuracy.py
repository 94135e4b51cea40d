"""Runs `rules/accuracy.py`: chooses the blocks that are compared, and runs the second view on them."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..evidence import STAYS, TEMPERATURES, Array
from ..recipe import SOURCE, Recipe
from ..rules import TRUSTED_SAMPLES
from ..rules.accuracy import BLOCK, MEMORY, Accuracy, Comparisons, View, confidence_of, until_next_block
from ..rules.answers import MeanAnswers, fits
from ..rules.domain import Domain, sharpness_of_batch
from ..shares.sharpness import differences
from .forward import Forward
from .model import AdaptedModel

log = logging.getLogger("delta_tta")


class AccuracyEstimator:
    """Estimates how many answers of one adapter are right. It changes no answer."""

    def __init__(self, updater: Forward, recipe: Recipe) -> None:
        self._updater = updater
        alone = (recipe.objective, recipe.standalone, recipe.postprocess)
        self._is_source = recipe.statistics == SOURCE and not any(alone)
        self._differs = not self._is_source or recipe.filter is not None
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._restart()
        self._domain = Domain()
        self._warned = False

    def _restart(self) -> None:
        """Begin again, as where a new domain begins."""
        self._known = Comparisons()
        self._samples = self._due = 0
        self._confidence = self._weight = 0.0
        self._moments: npt.NDArray[Any] = np.zeros((0, 0, 2))  # of the samples since the domain last took any
        self._block: list[Array] = []  # own, other, answers and the source's classes of a block that is not full
        self._names: list[Hashable] = []

    @property
    def accuracy(self) -> Accuracy | None:
        """The estimate; None before the first block."""
        return self._known.accuracy(self._confidence, self._differs) if self._known.compared else None

    @property
    def worse_than_source(self) -> bool | None:
        """Whether the source would answer better; None before the first block and where it answers itself."""
        return self._known.worse if self._known.compared and self._differs else None

    @torch.no_grad()
    def look(
        self,
        x: Tensor,
        logits: Tensor,
        answers: Tensor,
        names: Sequence[Hashable] | None = None,
        of_source: Tensor | None = None,
    ) -> None:
        """Count a batch, and compare it if a block is due.

        Args:
            x: the batch.
            logits: of the method, before any filter, (B, K).
            answers: what the caller got, (B, K).
            names: of each sample, the stream it belongs to; None: all to one.
            of_source: the source's logits where they are at hand, (B, K).
        """
        said = _log_p(answers)
        rows = np.isfinite(said.max(1))
        if not rows.all() or not len(x):
            return  # what is not finite tells nothing
        self._follow(x)
        self._weight = math.exp(-len(x) / MEMORY) * self._weight + len(x)
        self._confidence += len(x) / self._weight * (confidence_of(said) - self._confidence)
        if self._samples >= self._due or of_source is not None:
            self._collect(x[:BLOCK], logits[:BLOCK], said[:BLOCK], names, of_source)
        self._samples += len(x)
        if self._block and len(self._block[0]) >= BLOCK:
            self._compare()

    def _follow(self, x: Tensor) -> None:
        """Begin again where the images are of another sharpness."""
        found = differences(x)
        if found is None:
            return
        same = found.shape[1:] == self._moments.shape[1:]
        self._moments = np.concatenate([self._moments, found]) if same else found
        if len(self._moments) < BLOCK:
            return
        sharpness, self._moments = sharpness_of_batch(self._moments), np.zeros((0, 0, 2))
        if sharpness is None:
            return
        if self._domain.left_by(sharpness):
            self._restart()
            self._domain = Domain()
        self._domain = self._domain.with_batch(sharpness)

    def _collect(
        self, x: Tensor, logits: Tensor, said: Array, names: Sequence[Hashable] | None, of_source: Tensor | None
    ) -> None:
        """Add samples to the block."""
        own = _log_p(logits)
        if self._is_source:
            found, source = under_batch_statistics(self._updater.adapted, x), own
        else:
            found = self._updater.logits_of_source(x) if of_source is None else of_source[:BLOCK]
            source = _log_p(found)
        other = own if found is None else _log_p(found)
        if not (np.isfinite(own.max(1)).all() and np.isfinite(other.max(1)).all()):
            return
        news = [own, other, said, source.argmax(1)]
        if self._block and self._block[0].shape[1] != own.shape[1]:
            self._restart()  # another number of classes
        self._block = [np.concatenate(pair) for pair in zip(self._block, news, strict=True)] if self._block else news
        self._names += [None] * len(x) if names is None else list(names)[: len(x)]

    def _compare(self) -> None:
        own, other, said, source = (part[:BLOCK] for part in self._block)
        self._known = self._known.after(own, other, said, source, self._names[:BLOCK])
        self._block, self._names = [], []
        self._due = self._samples + until_next_block(self._samples)
        worse = bool(self.worse_than_source)
        if worse and not self._warned:
            log.warning("delta-tta: the source itself seems to answer better than the adapted model")
        self._warned = worse

    def remembered(self) -> dict[str, Any]:
        """Return what must be saved."""
        known = self._known
        if not self._samples:
            return {}
        counts = [known.compared, known.confidence, self._confidence, self._weight]
        means = [number for view in known.views for number in (view.uncertainty, view.order)]
        found: dict[str, Any] = {
            "counts": [self._samples, self._due, int(self._warned)],
            "means": torch.tensor([*counts, *means], dtype=torch.float64),
            "scores": torch.from_numpy(known.scores.copy()),
            "domain": torch.from_numpy(self._domain.as_array()),
            "moments": torch.from_numpy(self._moments.copy()),
            "names": list(self._names),
        }
        for number, view in enumerate(known.views):
            found[f"answers{number}"] = torch.from_numpy(view.answers.sums.copy())
            found[f"levels{number}"] = torch.from_numpy(view.answers.counts.copy())
            found[f"evidence{number}"] = torch.from_numpy(view.evidence.copy())
        for number, part in enumerate(self._block):
            found[f"block{number}"] = torch.from_numpy(part.copy())
        return found

    def fits(self, saved: Mapping[str, Any], classes: int | None) -> bool:
        """Whether an estimator may have remembered this."""
        if not saved:
            return True
        parts = [saved[name] for name in BLOCK_PARTS if name in saved]
        rows = len(saved["names"])
        return (
            len(saved["counts"]) == 3
            and all(isinstance(n, int) and n >= 0 for n in saved["counts"])
            and saved["means"].shape == (8,)
            and saved["scores"].shape == (2, 3)
            and len(saved["domain"]) == 3
            and saved["moments"].dim() == 3
            and all(
                fits(saved[f"answers{n}"].shape, saved[f"levels{n}"].shape, (len(TEMPERATURES),), None)
                and saved[f"evidence{n}"].shape == (len(TEMPERATURES), len(STAYS))
                and saved[f"answers{n}"].shape[-1] in (0, classes or saved[f"answers{n}"].shape[-1])
                for n in (0, 1)
            )
            and len(parts) in (0, len(BLOCK_PARTS))
            and all(len(part) == rows for part in parts)
            and (bool(parts) or not rows)
        )

    def recall(self, saved: Mapping[str, Any]) -> None:
        """Go on from what was remembered."""
        self.reset()
        if not saved:
            return
        self._samples, self._due, warned = saved["counts"]
        self._warned = bool(warned)
        compared, confidence, self._confidence, self._weight, *means = saved["means"].double().tolist()
        views = [
            View(
                MeanAnswers(_array(saved[f"answers{n}"]), _array(saved[f"levels{n}"])),
                _array(saved[f"evidence{n}"]),
                *means[2 * n : 2 * n + 2],
            )
            for n in (0, 1)
        ]
        scores = saved["scores"].double().cpu().numpy().copy()
        self._known = Comparisons((views[0], views[1]), compared, scores, confidence)
        self._domain = Domain.of(_array(saved["domain"]))
        self._moments = saved["moments"].double().cpu().numpy().copy()
        self._block = [saved[name].cpu().numpy().copy() for name in BLOCK_PARTS if name in saved]
        self._names = list(saved["names"])


BLOCK_PARTS = tuple(f"block{n}" for n in range(4))


def under_batch_statistics(adapted: AdaptedModel, x: Tensor) -> Tensor | None:
    """Return the logits of the model with each layer normalised by the batch itself; None where that cannot be.

    Nothing in the model changes: with `track_running_stats` off a layer in training mode keeps no averages.
    """
    layers = [layer for layer in adapted.model.modules() if isinstance(layer, _BatchNorm)]
    if len(x) < TRUSTED_SAMPLES or not layers or any(isinstance(one, nn.SyncBatchNorm) for one in layers):
        return None
    adapted.model.eval()
    tracked = [layer.track_running_stats for layer in layers]
    try:
        for layer in layers:
            layer.training, layer.track_running_stats = True, False
        found = adapted.model(adapted.layout(x).clone())
    finally:
        for layer, before in zip(layers, tracked, strict=True):
            layer.training, layer.track_running_stats = False, before
    return found if isinstance(found, Tensor) else None


def _log_p(logits: Tensor) -> Array:
    found: Array = logits.detach().float().log_softmax(1).cpu().numpy()
    return found


def _array(saved: Tensor) -> Array:
    found: Array = saved.float().cpu().numpy().copy()
    return found
