"""Metrics against counting by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta import InputError
from delta_tta.metrics import Metrics, accuracy, class_mean_accuracy

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=50)


@given(pairs)
def test_accuracies_are_what_counting_gives(rows):
    predicted, labels = (torch.tensor(column) for column in zip(*rows, strict=True))
    per_class = [sum(p == y for p, y in rows if y == c) / sum(y == c for _, y in rows) for c in {y for _, y in rows}]
    assert class_mean_accuracy(predicted, labels) == pytest.approx(sum(per_class) / len(per_class))
    assert accuracy(predicted, labels) == pytest.approx(sum(p == y for p, y in rows) / len(rows))


@given(pairs, st.integers(1, 10), st.integers(0, 99))
def test_batch_by_batch_is_all_at_once(rows, size, seed):
    labels = torch.tensor([y for _, y in rows])
    logits = torch.randn(len(rows), 5, generator=torch.Generator().manual_seed(seed)) * 3
    whole, parts = Metrics(5), Metrics(5)
    whole.update(logits, labels)
    for i in range(0, len(rows), size):
        parts.update(logits[i : i + size], labels[i : i + size])
    for name in ("samples", "accuracy", "class_mean_accuracy", "prediction_std", "prediction_range"):
        assert getattr(whole, name) == getattr(parts, name)
    assert whole.expected_calibration_error == pytest.approx(parts.expected_calibration_error)
    assert whole.class_mean_accuracy == class_mean_accuracy(logits, labels)


def test_calibration_error_by_hand():
    """Four samples at confidence 0.8, three right; two at 0.6, none right."""
    p = torch.tensor([[0.8, 0.2]] * 4 + [[0.6, 0.4]] * 2)
    metrics = Metrics(2)
    metrics.update(p.log(), torch.tensor([0, 0, 0, 1, 1, 1]))
    assert metrics.expected_calibration_error == pytest.approx((4 * 0.05 + 2 * 0.6) / 6, abs=1e-6)


def test_a_sure_and_right_model_is_calibrated():
    metrics = Metrics(3)
    metrics.update(torch.eye(3) * 1e4, torch.arange(3))
    assert metrics.expected_calibration_error == 0
    assert metrics.accuracy == 1


def test_prediction_counts():
    metrics = Metrics(4)
    metrics.update_predicted(torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 2, 3]))
    assert metrics.predicted.tolist() == [3, 1, 0, 0]
    assert metrics.prediction_range == 3
    assert metrics.prediction_std == pytest.approx(math.sqrt((4 + 0 + 1 + 1) / 4))


@pytest.mark.parametrize(
    ("logits", "labels", "teaches"),
    [
        (torch.randn(4, 3), torch.zeros(4, dtype=torch.long), "(B, 5)"),
        (torch.randn(4, 5), torch.zeros(3, dtype=torch.long), "one true class"),
        (torch.randn(4, 5), torch.zeros(4), "float32"),
        (torch.randn(2, 5), torch.tensor([0, 5]), "every label"),
    ],
)
def test_refusals_change_nothing(logits, labels, teaches):
    metrics = Metrics(5)
    with pytest.raises(InputError) as error:
        metrics.update(logits, labels)
    assert teaches in str(error.value)
    assert metrics.samples == 0
    fresh, answers, classes = Metrics(5), torch.randn(4, 5), torch.arange(4)
    for each in (metrics, fresh):
        each.update(answers, classes)
    assert metrics.predicted.tolist() == fresh.predicted.tolist()
    assert metrics.expected_calibration_error == fresh.expected_calibration_error
