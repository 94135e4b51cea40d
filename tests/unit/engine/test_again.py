"""A batch is run again as it was run: by the model or the source, in the same precision, and nothing is remembered."""

import copy

import pytest
import torch

import delta_tta
from delta_tta.engine.again import Again
from nets import batches, conv_net, same_state


def learnt(method="tent+delta", count=3):
    """An adapter that is far from its source, and its updater."""
    adapter = delta_tta.adapt(conv_net(), method, lr=0.1, guard="off")
    for x in batches(count):
        adapter(x)
    return adapter, adapter._updater


def test_the_source_answers_as_before_any_adaptation():
    adapter, updater = learnt()
    x = batches(1, seed=7)[0]
    expected = conv_net().eval()(x)
    assert torch.allclose(Again(updater, x, "cpu").of_source(), expected, atol=1e-5)
    assert not torch.allclose(adapter.predict(x), expected, atol=1e-2)


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("method", ["tent", "tent+tema", "tent+delta"])
def test_it_repeats_what_the_layers_observed_and_leaves_no_trace(method, count):
    """Also at the first batch, with whose statistics the averages start."""
    adapter, updater = learnt(method, count)
    twin = copy.deepcopy(adapter)
    x = batches(1, seed=7)[0]
    with updater.in_phase("observing"):
        logits = updater.learnable(x)
    again = Again(updater, x, "cpu")
    assert torch.allclose(again.on(x), logits, atol=1e-6)
    repeated = again.learnable()
    assert torch.allclose(repeated, logits, atol=1e-6)
    first, second = (updater.gradients(one.square().sum()) for one in (logits, repeated))
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(first, second, strict=True))
    updater.discard()
    assert same_state(adapter, twin)


def test_what_runs_between_the_answer_and_the_update_is_not_learnt_from():
    adapter, updater = learnt()
    twin = copy.deepcopy(adapter)
    x, other = batches(2, seed=7)
    _, learn = updater.observe(x)
    again = Again(updater, x, "cpu")
    again.on(other), again.learnable(other), again.of_source()
    learn()
    twin._updater.observe(x)[1]()
    assert same_state(adapter, twin)


def test_other_images_run_without_gradient_and_with_it():
    _, updater = learnt()
    x, other = batches(2, seed=7)
    with updater.in_phase("observing"):
        updater.learnable(x)
    again = Again(updater, x, "cpu")
    plain, trained = again.on(other), again.learnable(other)
    assert torch.allclose(plain, trained, atol=1e-6)
    assert not plain.requires_grad
    assert trained.requires_grad
    assert not torch.allclose(plain, again.on(x), atol=1e-2)


def test_the_precision_is_that_of_the_batch():
    _, updater = learnt("tent", count=1)
    x = batches(1)[0]
    with torch.autocast("cpu", torch.bfloat16):
        cast = Again(updater, x, "cpu")
    plain = Again(updater, x, "cpu")
    assert cast.on(x).dtype == cast.of_source().dtype == cast.learnable().dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert plain.on(x).dtype == plain.of_source().dtype == plain.learnable().dtype == torch.float32
