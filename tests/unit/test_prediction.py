"""What is known of a batch of logits."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.prediction import Prediction


@given(st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=1, max_size=8))
def test_entropy_lies_between_0_and_ln_k_and_its_gradient_is_finite(rows):
    logits = torch.tensor(rows, requires_grad=True)
    h = Prediction(logits).entropy
    assert bool((h >= -1e-6).all())
    assert bool((h <= math.log(3) + 1e-5).all())
    assert torch.autograd.grad(h.sum(), logits)[0].isfinite().all()
