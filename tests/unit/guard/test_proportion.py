"""Batches that are out of proportion in most channels of the first layer."""

import pytest
import torch

from delta_tta.guard.proportion import FeatureRange
from delta_tta.signals import Reason

MEAN, STD = torch.tensor([0.0, 1.0, -2.0, 5.0]), torch.tensor([1.0, 2.0, 0.5, 1.0])


@pytest.mark.parametrize("scale", [1.0, 0.02, 50.0])
def test_what_lies_within_reach_is_fine(scale):
    assert FeatureRange(MEAN, STD, reach=100.0).left_by(MEAN + 50 * STD, STD * scale) is None


@pytest.mark.parametrize(
    ("mean", "std", "words"),
    [
        (MEAN, STD * 255, "2.6e+02 times as wide as the source's, 0 widths off"),
        (MEAN, STD / 255, "0.0039 times as wide as the source's, 0 widths off"),
        (MEAN - 130 * STD, STD, "1 times as wide as the source's, 1.3e+02 widths off"),
    ],
)
def test_what_lies_beyond_says_how_far(mean, std, words):
    found = FeatureRange(MEAN, STD, reach=100.0).left_by(mean, std)
    assert found.reason is Reason.OUT_OF_PROPORTION
    assert words in found


def test_half_of_the_channels_are_not_most():
    within = FeatureRange(MEAN, STD, reach=100.0)
    std = STD.clone()
    std[:2] *= 1000
    assert within.left_by(MEAN, std) is None
    std[2] *= 1000
    assert within.left_by(MEAN, std) is not None
    assert within.left_by(MEAN, torch.full_like(STD, float("nan"))) is not None
