"""How well a stream was classified; all of it can be kept up to date batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import InputError

BINS = 15
"""Of the expected calibration error (Guo et al. 2017)."""


def class_mean_accuracy(predictions: Tensor, labels: Tensor) -> float:
    """Mean of the accuracies of the classes present in `labels`, 0 to 1: the paper's metric.

    Args:
        predictions: predicted classes (N,), or logits (N, K).
        labels: true classes (N,).

    Examples:
        >>> class_mean_accuracy(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 1, 1]))
        0.75
    """
    return _metrics_of(predictions, labels).class_mean_accuracy


def accuracy(predictions: Tensor, labels: Tensor) -> float:
    """Share of the samples predicted right, 0 to 1; arguments as in `class_mean_accuracy`."""
    return _metrics_of(predictions, labels).accuracy


def _metrics_of(predictions: Tensor, labels: Tensor) -> Metrics:
    if predictions.dim() == 2:
        metrics = Metrics(predictions.shape[1])
        metrics.update(predictions, labels)
    else:
        metrics = Metrics(1 + int(max(predictions.max(), labels.max())) if len(labels) else 1)
        metrics.update_predicted(predictions, labels)
    return metrics


class Metrics:
    """Running counts over a stream; memory does not grow with it.

    Examples:
        >>> metrics = Metrics(classes=2)
        >>> metrics.update(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]))
        >>> metrics.accuracy, metrics.prediction_range
        (0.5, 2)
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.seen = torch.zeros(classes, dtype=torch.int64)
        self.right = torch.zeros(classes, dtype=torch.int64)
        self.predicted = torch.zeros(classes, dtype=torch.int64)
        self._bins = torch.zeros(3, BINS, dtype=torch.float64)  # samples, right ones, confidence

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count a batch by its logits (B, K) and true classes (B,)."""
        if logits.dim() != 2 or logits.shape[1] != self.classes:
            raise InputError(f"Expected logits of shape (B, {self.classes}), but got {tuple(logits.shape)}.")
        confidence, predicted = logits.detach().double().softmax(1).max(1)
        self.update_predicted(predicted, labels)
        right = (predicted.cpu() == labels.cpu()).double()
        confidence = confidence.cpu()
        bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1  # (0, 1/15], (1/15, 2/15], …
        for row, values in enumerate((torch.ones_like(right), right, confidence)):
            self._bins[row].index_add_(0, bins, values)

    def update_predicted(self, predicted: Tensor, labels: Tensor) -> None:
        """Count a batch by its predicted and true classes, each (B,)."""
        if predicted.shape != labels.shape or labels.dim() != 1 or labels.is_floating_point():
            raise InputError(
                f"Expected one predicted and one true class for each sample, but got shapes {tuple(predicted.shape)} "
                f"and {tuple(labels.shape)} ({labels.dtype})."
            )
        predicted, labels = predicted.detach().cpu().long(), labels.detach().cpu().long()
        for name, values in (("label", labels), ("prediction", predicted)):
            if len(values) and not 0 <= int(values.min()) <= int(values.max()) < self.classes:
                raise InputError(f"Expected every {name} to be a class from 0 to {self.classes - 1}.")
        self.seen += labels.bincount(minlength=self.classes)
        self.right += labels[predicted == labels].bincount(minlength=self.classes)
        self.predicted += predicted.bincount(minlength=self.classes)

    @property
    def samples(self) -> int:
        """How many samples were counted."""
        return int(self.seen.sum())

    @property
    def accuracy(self) -> float:
        """Share of the samples predicted right."""
        return float(self.right.sum() / self.seen.sum())

    @property
    def class_mean_accuracy(self) -> float:
        """Mean of the accuracies of the classes present."""
        present = self.seen > 0
        return float((self.right[present].double() / self.seen[present]).mean())

    @property
    def expected_calibration_error(self) -> float:
        """Mean distance between confidence and accuracy, over 15 bins of confidence; needs logits."""
        count, right, confidence = self._bins
        return float((right - confidence).abs().sum() / count.sum())

    @property
    def prediction_std(self) -> float:
        """Standard deviation of the number of predictions per class (the paper's Table 3)."""
        return float(self.predicted.double().std(correction=0))

    @property
    def prediction_range(self) -> int:
        """Largest minus smallest number of predictions per class (the paper's Table 3)."""
        return int(self.predicted.max() - self.predicted.min())
