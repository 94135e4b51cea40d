"""Tensors in half precision, and tensors that are changed in place."""

import pytest
import torch

from delta_tta.tensors import at_least_float32, changed_since, changes, follow


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_becomes_float32_and_the_rest_stays(kind):
    assert at_least_float32(torch.ones(2, dtype=kind)).dtype == torch.float32
    for x in (torch.ones(2), torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.int64)):
        assert at_least_float32(x) is x


def test_what_follows_a_model_is_never_in_half_precision():
    x = torch.tensor([1 / 3], dtype=torch.float64)
    assert follow(lambda t: t.half(), x).dtype == torch.float32
    assert torch.equal(follow(lambda t: t.half(), x), x.float())  # from the digits of x, not from rounded ones
    assert follow(lambda t: t.double(), x.float()).dtype == torch.float64
    assert follow(lambda t: t.to("meta"), x).device.type == "meta"


def test_changes_in_place_are_noticed_through_views_too():
    x = torch.zeros(3)
    before = changes(x)
    assert not changed_since(x, before)
    x[1:].add_(1)
    assert changed_since(x, before)
    assert not changed_since(x, changes(x))


def test_under_inference_mode_nobody_counts():
    with torch.inference_mode():
        x = torch.zeros(3)
        before = changes(x)
        x.add_(1)
    assert before is None
    assert not changed_since(x, before)
