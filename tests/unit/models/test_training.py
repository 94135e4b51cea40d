"""What a training is: its loss, its learning rate, its settings."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from delta_tta import data
from delta_tta.errors import SettingError
from delta_tta.models.training import Training, adjusted_loss, learning_rate, log_prior
from folders import write_images

COUNTS = {"cat": 9, "dog": 4, "ship": 8}


@pytest.fixture
def images(tmp_path):
    return data.folder(write_images(tmp_path / "images", COUNTS), size=None)


def test_the_loss_is_the_logit_adjusted_softmax_cross_entropy(images):
    torch.manual_seed(0)
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    shares = [count / 21 for count in COUNTS.values()]
    for adjust in (0.0, 0.5, 1.0):
        expected = 0.0  # −log of π_y^τ e^{f_y} / Σ_k π_k^τ e^{f_k}, the mean over the batch
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
            terms = [share**adjust * math.exp(logit) for share, logit in zip(shares, row, strict=True)]
            expected -= math.log(terms[label] / sum(terms)) / len(labels)
        assert float(adjusted_loss(logits, labels, log_prior(images), adjust)) == pytest.approx(expected, rel=1e-6)
    assert float(adjusted_loss(logits, labels, log_prior(images), 0.0)) == float(
        nn.functional.cross_entropy(logits, labels)
    )


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    rates = [learning_rate(step / 1000, 0.4) for step in range(1001)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[100] == pytest.approx(0.4)
    assert rates[550] == pytest.approx(0.2)
    assert rates[1000] == pytest.approx(0)
    assert np.all(np.diff(rates[:101]) > 0)
    assert np.all(np.diff(rates[100:]) < 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epochs": 0}, "`epochs` to be an integer of at least 1, but got 0"),
        ({"batch_size": 1}, "`batch_size` to be an integer of at least 2"),
        ({"lr": 0}, "`lr` to be a number above 0"),
        ({"adjust": -1}, "`adjust` to be a number of at least 0"),
        ({"decay": math.nan}, "`decay` to be a number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, words):
    with pytest.raises(SettingError, match=words):
        Training(**wrong)
