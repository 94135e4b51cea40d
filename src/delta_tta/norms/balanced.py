"""TBR whose statistics are balanced over the predicted classes: the word "tbr-b". Ours, not the paper's.

TBR's averages take every batch at its face value, so a class that fills the stream for a while pulls them to itself.
Here they move after the predictions are known, sample by sample: with f the class frequencies predicted so far (this
batch included) and y* the predicted label,

    w_i = min(1 / (K f[y*_i]), clip),    k = min(1, max(1 − α, 1 / (t+1)) · mean w),

and mean and second moment move by k towards the weighted ones of the batch, m = Σ w_i m_i / Σ w_i and likewise q. For
the variance this is

    σ² ← (1−k) σ² + k (q − m²) + k (1−k) (m − μ)²,

in which nothing large cancels; the last term is the variance between batches. What TBR adds to the variance, eps, stays
as it is, so σ² may stand for either. Value and gradient are TBR's.

With pace="even", t counts what the averages hold already, so that they begin as the mean over all batches: nothing,
where they start from the first batch, which is then weighed like any other; the source, where they start there, counts
as one batch. With pace="diverse", our default, k is the rate of pace.py, which looks at the batch as a whole and knows
how much the averages hold; nothing keeps them near the source, as the weights balance the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..distributed import Ranks
from ..settings import Settings
from ..words import State, word
from .layers import AdaptiveNorm, Tbr
from .statistics import Observation, sample_moments

if TYPE_CHECKING:
    from ..prediction import Prediction


class SampleObservation(Observation):
    """Keeps, besides the batch's statistics, the moments of each sample until the samples are weighed."""

    mean_weight: Tensor
    weighed: tuple[Tensor, Tensor]

    def look(self, x: Tensor) -> None:
        """Measure each sample, around the mean of this rank's samples."""
        self.centre, self.apart, self.squares = sample_moments(x)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Put the samples together."""
        self.look(x)
        return self.centre, self.squares.mean(0)

    def kind(self) -> tuple[object, ...]:
        """What layers must have in common to be weighed together."""
        mean, _ = self.statistics
        return len(self.apart), mean.dtype, mean.device


class Together:
    """Layers that met the same number of rows, weighed as one layer of all their channels: few calls instead of many.

    Rows are samples, one weight each; where they are something else, such as the frames of videos, all weigh alike.
    """

    def __init__(self, layers: Sequence[SampleObservation], weights: Tensor, mean_weight: Tensor) -> None:
        self.layers = layers
        self.mean = torch.cat([seen.statistics[0] for seen in layers])
        self.mean_weight, rows = mean_weight.to(self.mean), len(layers[0].apart)
        self.weights = weights.to(self.mean) if len(weights) == rows else self.mean_weight.expand(rows)
        if layers[0].empty:
            self.weights = torch.zeros_like(self.weights)

    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Σ w, Σ w (m_i − μ_b) and Σ w (the sample's mean of (v − μ_b)²) over this rank's samples."""
        total = self.weights.sum()
        # layer by layer: to lay the samples of all layers side by side would cost more than their sums
        apart = torch.cat([self.weights @ seen.apart for seen in self.layers])
        squares = torch.cat([self.weights @ seen.squares for seen in self.layers])
        if self.layers[0].ranks is not None:
            shift = torch.cat([seen.centre for seen in self.layers]) - self.mean
            squares = squares + shift * (2 * apart + shift * total)
            apart = apart + shift * total
        return total, apart, squares

    def weigh(self, total: Tensor, apart: Tensor, squares: Tensor) -> None:
        """Give each layer its weighted mean and variance, from the sums over all ranks."""
        apart = apart / total
        var = torch.addcmul(squares / total, apart, apart, value=-1).clamp_(min=0)
        widths = [seen.apart.shape[1] for seen in self.layers]
        weighed = zip((self.mean + apart).split(widths), var.split(widths), strict=True)
        for seen, pair in zip(self.layers, weighed, strict=True):
            seen.mean_weight, seen.weighed = self.mean_weight, pair


@word("tbr-b", "statistics", "tbr with statistics balanced over the predicted classes (ours)", part=True)
class Balanced(Tbr):
    """TBR with averages that a frequent class moves less."""

    observation = SampleObservation

    def reset(self) -> None:
        """The averages hold nothing, or the source, which counts as one batch."""
        super().reset()
        self.count = int(self.settled)

    def measured(self) -> Iterable[Tensor]:
        """The batch's statistics and the weighted ones."""
        yield from super().measured()
        for seen in self.observed():
            yield from seen.weighed

    def observed(self) -> list[SampleObservation]:
        """What was observed and not committed."""
        return [seen for seen in self._pending.seen if isinstance(seen, SampleObservation)]

    def commit(self) -> None:
        """Start the averages, if this is their first batch, and move them."""
        if self._pending.start is not None:
            self.count = int(self._pending.inherits)
        super().commit()

    def move(self, seen: Observation) -> None:
        """One step of mean and variance, see above."""
        assert isinstance(seen, SampleObservation)
        assert self.mean is not None
        assert self.std is not None
        step: Tensor | float | None = self._phase.rate
        if step is None:
            step = (max(1 - self.settings.alpha_b, 1 / (self.count + 1)) * seen.mean_weight).clamp(max=1)
        mean, var = seen.weighed
        between = (mean - self.mean).square_() * (step * (1 - step))
        self.std.square_().lerp_(var + self._eps, step).add_(between).sqrt_()
        self.mean.lerp_(mean, step)
        self.count += 1

    def remembered(self) -> dict[str, Tensor]:
        """The averages and how much they hold."""
        state = super().remembered()
        return {**state, "count": torch.tensor(float(self.count))} if state else {}

    def fits(self, state: Mapping[str, Tensor]) -> bool:
        """Whether it was remembered by a layer like this one."""
        count = state.get("count")
        averages = {key: t for key, t in state.items() if key != "count"}
        return count is not None and count.shape == () and 0 <= float(count) < math.inf and super().fits(averages)

    def recall(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what was remembered."""
        super().recall(state)
        self.count = int(state["count"])


class Balance:
    """Weighs the samples of a batch for the statistics; remembers f, the class frequencies, (K,)."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def next_state(self, prediction: Prediction, state: State) -> State:
        """Return f ← λ f + (1−λ) mean_B p; uniform at first."""
        p, classes = prediction.p, prediction.classes
        before = state["f"] if "f" in state else p.new_full((classes,), 1 / classes)
        return {"f": torch.lerp(p.mean(0), before, self.settings.lam_b)}

    def weights(self, prediction: Prediction, state: State) -> Tensor:
        """Return w, (B,), with the frequencies after this batch."""
        f = self.next_state(prediction, state)["f"]
        return (1 / (prediction.classes * f[prediction.label])).clamp(max=self.settings.clip_b)

    def weigh(
        self, prediction: Prediction, state: State, norms: Iterable[AdaptiveNorm], ranks: Ranks | None = None
    ) -> None:
        """Let all layers weigh what they observed; with ranks, in one exchange."""
        w = self.weights(prediction, state)
        own, mean = w if ranks is None else w[ranks.share], w.mean()
        groups: dict[object, list[SampleObservation]] = {}
        for seen in (seen for norm in norms if isinstance(norm, Balanced) for seen in norm.observed()):
            # ranks must send the same parts, and may not find the same layers alike
            groups.setdefault(seen.kind() if ranks is None else len(groups), []).append(seen)
        parts = [Together(group, own, mean) for group in groups.values()]
        sums: list[Tensor] = [t for part in parts for t in part.sums()]
        if ranks is not None:
            sums = [t for t in ranks.add(sums) if t is not None]
        for i, part in enumerate(parts):
            part.weigh(*sums[3 * i : 3 * i + 3])
