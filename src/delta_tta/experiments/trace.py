"""What happened along a stream, sample by sample and batch by batch; small enough to be kept beside every result."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..data.sets import MOST_CLASSES
from ..errors import DataError
from ..norms.base import AdaptiveNorm
from ..norms.statistics import batch_moments

CHANNELS = 8
"""Of one layer, whose statistics are watched."""

DAMAGE = OSError, ValueError, EOFError, KeyError, TypeError, NotImplementedError, zipfile.BadZipFile, zlib.error
"""What reading a damaged .npz can raise."""

Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Trace:
    """Attributes: classes predicted and true, in the order of arrival; anything measured once a batch, by name."""

    predicted: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    batches: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """Whether each sample was predicted right."""
        return np.asarray(self.predicted == self.labels)

    def packed(self) -> bytes:
        """Return everything as one compressed .npz."""
        file = io.BytesIO()
        batches = {f"batch {name}": values for name, values in self.batches.items()}
        np.savez_compressed(file, predicted=self.predicted, labels=self.labels, **batches)  # type: ignore[arg-type]  # numpy's stub takes `allow_pickle` for one of them
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Trace:
        """Read what `packed` wrote."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            batches = {name.removeprefix("batch "): arrays[name] for name in arrays if name.startswith("batch ")}
            found = cls(arrays["predicted"], arrays["labels"], batches)
        except DAMAGE as error:
            raise DataError(f"A trace is damaged: {error}.") from None
        if not (_classes(found.predicted) and _classes(found.labels) and len(found.predicted) == len(found.labels)):
            raise DataError("A trace is damaged: expected one class predicted and one true for each sample.")
        return found


def _classes(values: npt.NDArray[np.int32]) -> bool:
    plain = values.dtype == np.int32 and values.ndim == 1
    return plain and bool(((values >= 0) & (values < MOST_CLASSES)).all())


class Statistics:
    """Watches the statistics of one batch norm of a model: the batch's own, and those it normalises with.

    The layer is the first, which gets the same features under every method; of it the first eight channels.
    """

    def __init__(self, model: nn.Module) -> None:
        kinds = (AdaptiveNorm, nn.modules.batchnorm._BatchNorm)
        layers = [layer for layer in model.modules() if isinstance(layer, kinds)]
        # an adaptive layer holds the layer it stands for: that one is not run
        hidden = {id(layer.source) for layer in layers if isinstance(layer, AdaptiveNorm)}
        layers = [layer for layer in layers if id(layer) not in hidden]
        self.rows: list[dict[str, Tensor]] = []
        self._fresh = False
        self._handle = layers[0].register_forward_pre_hook(self._look) if layers else None

    def next_batch(self) -> None:
        """Say that a batch begins: of its forward passes, the first is looked at."""
        self._fresh = True

    def _look(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not self._fresh:
            return
        self._fresh = False
        with torch.no_grad():
            mean, var = batch_moments(inputs[0].detach())
        row = {"batch mean": mean, "batch std": (var + float(layer.eps)).sqrt()}  # type: ignore[arg-type]  # all batch norms have it
        kept = getattr(layer, "mean", None)
        if isinstance(kept, Tensor):
            row |= {"kept mean": kept, "kept std": layer.std}
        self.rows.append({name: values[:CHANNELS].detach().float().cpu().clone() for name, values in row.items()})

    def stop(self) -> dict[str, npt.NDArray[np.float32]]:
        """Look no more; return what was seen, (batches, channels) by name. Before a first batch nothing was kept."""
        if self._handle is not None:
            self._handle.remove()
        names = sorted({name for row in self.rows for name in row})
        nothing = torch.full((CHANNELS,), float("nan"))
        return {
            name: np.stack([row.get(name, nothing[: len(next(iter(row.values())))]).numpy() for row in self.rows])
            for name in names
        }
