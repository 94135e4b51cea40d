"""When to update: what is learnt, and from which samples."""

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta import InputError
from delta_tta.norms.layers import MovingAverage
from nets import batches, conv_net, flatten


def learnt(adapter):
    """Record the batches the adapter learns from."""
    seen, updater = [], adapter._updater
    observe = updater.observe

    def record(x, later=False):
        seen.append(x.clone())
        return observe(x, later)

    updater.observe = record
    return seen


def kept(adapter):
    """How many samples it keeps for later."""
    cache = adapter.state_dict()["cache"]
    return 0 if cache is None else len(cache)


def split(stream, sizes):
    samples, out, start = torch.cat(stream), [], 0
    for size in sizes:
        out.append(samples[start : start + size])
        start += size
    return out


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_slow_update_learns_from_the_last_l_samples_every_l_over_b_batches(size):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8, init="first")
    seen, stream = learnt(adapter), split(batches(3, size=8), [size] * (24 // size))
    for i, x in enumerate(stream, 1):
        adapter(x)
        assert len(seen) == i * size // 8
    assert torch.equal(torch.cat(seen), torch.cat(stream))


def test_slow_update_answers_with_the_model_as_it_was():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8, lr=0.1, init="inherit")
    reference = delta_tta.adapt(conv_net(), "tent+delta", update="every", lr=0.1, init="inherit")
    for x in batches(6, size=8):
        expected = reference.predict(x)
        reference(x)
        assert torch.equal(adapter(x), expected)
    assert same_state_but_cache(adapter, reference)


def same_state_but_cache(a, b):
    a, b = (
        {k: v for k, v in flatten(m.state_dict()).items() if k[0] in ("parameters", "statistics", "reweighting")}
        for m in (a, b)
    )
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def first_norm(adapter):
    return next(module for module in adapter.modules() if isinstance(module, MovingAverage))


@pytest.mark.parametrize("method", ["tent+delta", "tema"])
def test_slow_update_from_the_first_batch_starts_with_its_statistics(method):
    paper = {"update": "slow", "length": 8, "init": "first"}
    (x,) = batches(1, size=3)
    adapter, bn = fitting(conv_net(), method, **paper), delta_tta.adapt(conv_net(), "bn")
    assert torch.allclose(adapter(x), bn(x), atol=1e-5)  # what BN adapt answers
    norm = first_norm(adapter)
    features = conv_net()[0](x)
    mean, var = features.mean((0, 2, 3)), features.var((0, 2, 3), unbiased=False)
    assert torch.allclose(norm.mean, mean, atol=1e-6)
    assert torch.allclose(norm.std, (var + norm.source.eps).sqrt(), atol=1e-6)
    assert torch.equal(adapter(x), adapter.predict(x))  # until the update nothing moves


def test_slow_update_from_the_first_batch_depends_on_its_size():
    def answers(size, init):
        adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8, **init)
        return torch.cat([adapter(x) for x in split(batches(4, size=8), [size] * (32 // size))])

    first, inherit = {"init": "first"}, {"init": "inherit"}
    assert not torch.allclose(answers(8, first), answers(2, first), atol=1e-2)
    assert torch.allclose(answers(8, inherit), answers(2, inherit), atol=1e-5)
    every = delta_tta.adapt(conv_net(), "tent+delta")
    assert torch.allclose(answers(8, first), torch.cat([every(x) for x in batches(4, size=8)]), atol=1e-5)


def test_averages_do_not_start_from_what_is_not_finite():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8)
    good, bad = batches(2, size=2)
    adapter(torch.full_like(bad, 3e38))
    assert first_norm(adapter).mean is None
    adapter.reset()
    adapter(good)
    assert first_norm(adapter).mean.isfinite().all()


@pytest.mark.parametrize("sizes", [(5, 1, 7, 3), (20, 3, 1), (3, 3, 3, 3, 3, 3), (16,), (1,) * 11])
def test_slow_update_uses_every_sample_once_whatever_the_batch_sizes(sizes):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8)
    seen, stream = learnt(adapter), split(batches(3, size=16), sizes)
    for x in stream:
        assert len(adapter(x)) == len(x)
    total = sum(sizes)
    assert [len(x) for x in seen] == [8] * (total // 8)
    if seen:
        assert torch.equal(torch.cat(seen), torch.cat(stream)[: total // 8 * 8])
    assert kept(adapter) == total % 8


def test_slow_update_says_that_it_is_collecting():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="slow", length=8)
    adapter(batches(1, size=3)[0])
    assert adapter.signals.skipped == "collecting samples: 3 of 8"
    assert adapter.signals.loss is None
    assert adapter.signals.entropy > 0
    adapter(batches(1, size=5)[0])
    assert adapter.signals.skipped is None
    assert adapter.signals.samples == 8
    z = adapter.signals.frequencies
    adapter(batches(1, size=5)[0])
    assert torch.equal(adapter.signals.frequencies, z)


def test_window_learns_from_the_last_l_samples_at_every_batch():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update="window", length=6)
    seen, sizes = learnt(adapter), (2, 2, 2, 2, 3, 9, 1)
    stream = split(batches(4, size=8), sizes)
    for x in stream:
        assert len(adapter(x)) == len(x)
    samples, end = torch.cat(stream), 0
    assert kept(adapter) == 6
    for size, window in zip(sizes, seen, strict=True):
        end += size
        assert torch.equal(window, samples[max(0, end - max(6, size)) : end])


def test_window_answers_the_new_samples_in_the_company_of_the_old():
    adapter = delta_tta.adapt(conv_net(), "bn", update="window", length=8, guard="off")
    a, b = split(batches(1, size=8), (5, 3))
    adapter(a)
    expected = delta_tta.adapt(conv_net(), "bn", guard="off")(torch.cat([a, b]))[-3:]
    assert torch.equal(adapter(b), expected)


@pytest.mark.parametrize("update", ["slow", "window"])
def test_samples_of_another_shape_are_refused_before_anything_changes(update):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update=update, length=8)
    adapter(batches(1, size=3)[0])
    before = flatten(adapter.state_dict())
    with pytest.raises(InputError, match="Expected samples of shape"):
        adapter(torch.randn(3, 3, 9, 9))
    after = flatten(adapter.state_dict())
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert adapter.signals.samples == 3


@pytest.mark.parametrize("update", ["slow", "window"])
def test_samples_of_another_type_are_refused_and_not_converted(update):
    """Beside kept samples in floats, a byte would become a float up to 255, which the model would have refused."""
    adapter = delta_tta.adapt(conv_net(), "tent+delta", update=update, length=8)
    good = batches(1, size=3)[0]
    adapter(good)
    with pytest.raises(InputError, match=r"torch\.float32 on cpu\), but got .*torch\.uint8"):
        adapter(good.to(torch.uint8))
    assert adapter.signals.samples == 3


@pytest.mark.parametrize("method", ["tent", "tent+delta"])
def test_a_window_does_not_keep_samples_that_overflow(method):
    adapter, reference = (fitting(conv_net(), method, update="window", length=8, lr=0.1) for _ in range(2))
    first, bad, *rest = batches(4, size=3)
    adapter(first), reference(first)
    adapter(bad.sign() * 3e38)
    assert adapter.signals.skipped.startswith("not finite")
    for x in rest:
        assert torch.equal(adapter(x), reference(x))
        assert adapter.signals.skipped is None


@pytest.mark.parametrize("update", ["slow", "window"])
def test_the_callers_buffer_may_be_reused(update):
    results = []
    for reuse in (False, True):
        adapter = delta_tta.adapt(conv_net(), "tent+delta", update=update, length=8, lr=0.1)
        buffer = torch.empty(3, 3, 8, 8)
        for x in batches(8, size=3):
            logits = adapter(buffer.copy_(x) if reuse else x)
            buffer.fill_(float("nan"))
        results.append(logits)
    assert torch.equal(*results)


def test_gradients_left_in_the_model_are_not_stepped_with():
    net = conv_net(sharp=0.01)
    for p in net.parameters():
        p.grad = torch.ones_like(p)  # a user's own, which stay
    adapter = delta_tta.adapt(net, "pl+delta", threshold=0.99)
    before = adapter.state_dict()["parameters"]
    adapter(batches(1)[0])
    assert adapter.signals.used == 0
    after = adapter.state_dict()
    assert all(torch.equal(before[k], after["parameters"][k]) for k in before)
    assert not after["optimizer"]
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in net.parameters())


def test_episodic_forgets_before_each_batch():
    stream = batches(3)
    adapter = delta_tta.adapt(conv_net(), "tent+delta", episodic=True, lr=0.5)
    for x in stream:
        assert torch.equal(adapter(x), delta_tta.adapt(conv_net(), "tent+delta", lr=0.5)(x))
    assert adapter.signals.step == 3


@pytest.mark.parametrize("update", ["auto", "slow", "window"])
@pytest.mark.parametrize("method", ["source", "tta", "memo", "lame", "bn"])
def test_who_learns_nothing_collects_nothing(method, update):
    kept_for_the_answer = update == "window" and method in ("lame", "bn")
    settings = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "views": 2, "guard": "off"}
    adapter = fitting(conv_net(), method, update=update, **settings)
    reference = fitting(conv_net(), method, update="every", **settings)
    for size in (8, 8, 10):
        x = batches(1, size=3, shape=(3, size, size))[0]
        if kept_for_the_answer and size == 10:
            with pytest.raises(InputError, match="like the ones kept"):
                adapter(x)
            continue
        answer = adapter(x)
        assert adapter.signals.skipped is None
        if not kept_for_the_answer:
            assert torch.equal(answer, reference(x))
    assert (adapter.state_dict()["cache"] is not None) == kept_for_the_answer
