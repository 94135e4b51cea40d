"""The sharpness of images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from delta_tta.shares.sharpness import sharpness


def images(seed: int, blur: bool = False, size: int = 16) -> torch.Tensor:
    x = torch.randn(size, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool2d(4 * x, 5, 1, 2) if blur else x


def test_sharpness_is_the_log_of_the_standard_deviation_of_second_differences() -> None:
    x = images(0)
    bends = x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2]
    expected = [bends[:, c].std(correction=0).log().item() for c in range(3)]
    assert sharpness(x) == pytest.approx(expected, abs=1e-5)
    assert sharpness((20 * x).round().to(torch.int8)) == pytest.approx(np.array(expected) + np.log(20), abs=0.02)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 9), (4, 3, 8, 2)])
def test_input_without_width_has_none(shape: tuple[int, ...]) -> None:
    assert sharpness(torch.rand(shape)) is None


def test_values_too_large_to_be_squared_have_none_and_warn_of_nothing() -> None:
    assert sharpness(torch.full((1, 3, 8, 8), torch.finfo(torch.float32).max)) is None
    assert sharpness(1e30 * torch.randn(2, 3, 8, 8)) is None
