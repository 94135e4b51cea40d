"""The ONNX graph of a model: runs it with given statistics, and finishes those that it measures."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DataError, InputError, install
from ..evidence import Array

FORMAT = "delta-tta edge 1"

Statistics = tuple[Array, Array]
"""μ and σ of all channels of all layers, (C,) each."""
Images = npt.NDArray[Any]


class Run(NamedTuple):
    """What a run of the graph returns.

    Attributes:
        logits: (B, K).
        means: of the samples that were measured, (n, C).
        variances: of these, (n, C).
    """

    logits: Array
    means: Array
    variances: Array


class Network:
    """A session of onnxruntime, and what the file says about the model."""

    def __init__(self, path: str | Path, threads: int | None, providers: list[str] | None) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise DataError(f"EdgeModel needs onnxruntime: {install('edge')}.") from error
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        if not Path(path).is_file():
            raise DataError(f"Expected a file written by delta_tta.edge.export, but {str(path)!r} is missing.")
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=providers or ["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's errors share no base class but this
            raise DataError(
                f"Expected an ONNX file that onnxruntime can run, but {str(path)!r} is none: {error}"
            ) from error
        about = json.loads(self._session.get_modelmeta().custom_metadata_map.get("delta_tta", "{}"))
        if about.get("format") != FORMAT:
            raise DataError(
                f"Expected a file written by delta_tta.edge.export ({FORMAT!r}), but {str(path)!r} says "
                f"{about.get('format')!r}; export the model again."
            )
        self.about: dict[str, Any] = about
        self.adapts = bool(about["channels"])
        self.source: Statistics = _decoded(about["mean"]), _decoded(about["std"])
        self.eps: Array = np.repeat(np.array(about["eps"], np.float32), about["channels"])
        ends = np.cumsum(about["channels"]).astype(int).tolist()
        self.layers = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        taken = self._session.get_inputs()[0]
        self._shape, self._type = taken.shape, taken.type

    def check(self, x: object) -> Images:
        """Return the batch, if the graph takes it."""
        images = np.asarray(x)
        kind = {"tensor(float)": "float32", "tensor(double)": "float64"}.get(self._type, self._type[7:-1])
        expected = ("B", *self._shape[1:])
        wrong = images.ndim != len(expected) or images.shape[1:] != tuple(self._shape[1:]) or not len(images)
        if wrong or images.dtype.name != kind:
            raise InputError(
                f"Expected images of shape {expected} and type {kind}, as the model was exported with, but got "
                f"{images.shape} and {images.dtype}."
            )
        return images

    def run(
        self, images: Images, statistics: Statistics | None = None, own: float = 0.0, first: int | None = None
    ) -> Run:
        """Run the graph.

        Args:
            images: the batch.
            statistics: μ and σ to normalise with; None for the source's.
            own: how much of the batch's own statistics is added to them.
            first: the sample from which on they are measured; None: none.
        """
        if not self.adapts:
            (logits,) = self._session.run(["logits"], {"images": images})
            return Run(logits, *(np.zeros((0, 0), np.float32) for _ in range(2)))
        mean, std = self.source if statistics is None else statistics
        rows = np.arange(len(images) if first is None else first, len(images))
        given = {"images": images, "mean": mean, "std": std, "own": np.array(own, np.float32), "rows": rows}
        return Run(*self._session.run(["logits", "means", "variances"], given))

    def measured(self, run: Run) -> Statistics:
        """Return μ_b and σ_b of the samples that were measured."""
        mean = run.means.mean(0)
        variance = (run.variances + (run.means - mean) ** 2).mean(0)
        return mean, np.sqrt(variance + self.eps)


def _decoded(text: str) -> Array:
    return np.frombuffer(base64.b64decode(text), "<f4").astype(np.float32)
