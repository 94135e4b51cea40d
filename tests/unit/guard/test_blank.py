"""Batches that show nothing: they are answered, and no average follows them."""

import logging

import pytest
import torch
from torch import nn

from all_methods import fitting
from delta_tta import Guard
from delta_tta.engine.step import Updater
from delta_tta.guard import blank
from delta_tta.rules.shift import Shift
from nets import bright, channel_net, flatten, same, without_counts

METHODS = ["tema", "tent+tema", "tent+delta", "ent-w+delta", "anchored", "tent+anchored", "tent+anchored+dot+sticky"]
SIZE = 16


def adapter(method="tent+delta", net=None, **settings):
    return fitting(net or channel_net(), method, **{"guard": "on", **settings})


def images(seed=0, size=SIZE):
    """Every class, a little brighter than the source knows."""
    return bright([i % 10 for i in range(size)], seed=seed).repeat_interleave(3, 2).repeat_interleave(3, 3) + 0.2


def frames(level=0.0, noise=0.02, size=SIZE, seed=7):
    return level + noise * torch.randn(size, 10, 12, 12, generator=torch.Generator().manual_seed(seed))


def learnt(model):
    return without_counts(model.state_dict())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("level", [-0.5, 0.0, 1.5])
@pytest.mark.parametrize("settings", [{}, {"init": "inherit"}, {"background": True}])
def test_blank_frames_are_answered_and_not_learnt_from(method, level, settings):
    model, never = adapter(method, **settings), adapter(method, **settings)
    for x in (images(0), images(1)):
        model(x)
        never(x)
    before, expected = learnt(model), model.predict(frames(level))
    answer = model(frames(level))
    if "anchored" not in method:  # which chooses another share for it
        assert torch.equal(answer, expected)
    assert model.signals.skipped == "shows nothing: all samples are alike, and far from what the source knows"
    assert (model.signals.refused, model.signals.rollbacks) == (1, 0)
    assert same(learnt(model), before)
    assert torch.equal(model(images(2)), never(images(2)))
    assert model.signals.skipped is None
    assert same(learnt(model), learnt(never))


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_may_begin_with_them(method):
    model, never = adapter(method), adapter(method)
    for seed in range(3):
        model(frames(seed=seed))
    assert model.signals.refused == 3
    assert not flatten(model.state_dict()["statistics"])
    assert torch.equal(model(images()), never(images()))
    assert same(learnt(model), learnt(never))


def test_the_log_says_so_ever_more_rarely(caplog):
    model = adapter("tema")
    with caplog.at_level(logging.WARNING, "delta_tta"):
        for _ in range(9):
            model(frames())
    assert [line.rsplit("; ", 1)[1] for line in caplog.messages] == [f"{n} so far" for n in (1, 2, 4, 8)]
    assert all("shows nothing" in line for line in caplog.messages)


def test_without_it_averages_follow():
    for guard in ("off", Guard(alike=0)):
        model = adapter("tema", guard=guard)
        model(images())
        before = learnt(model)
        model(frames())
        assert model.signals.skipped is None
        assert not same(learnt(model), before)


def counting(monkeypatch, name):
    """How many samples a method of the updater was asked about, batch by batch."""
    sizes, own = [], getattr(Updater, name)
    monkeypatch.setattr(Updater, name, lambda self, x: (sizes.append(len(x)), own(self, x))[1])
    return sizes


def test_what_the_reference_makes_of_them_is_no_verdict(monkeypatch):
    """Else a lens covered when the reference is asked would undo all that was learnt, or be taken for health."""
    model, asked = adapter("tent+delta", guard=Guard(every=1, samples=1)), counting(monkeypatch, "logits_of_reference")
    for seed in range(4):
        model(images(seed))
    before, met = learnt(model), len(asked)
    assert met > 0
    for seed in range(3):
        model(frames(size=20, seed=seed))
    assert asked == [SIZE] * met
    assert (model.signals.refused, model.signals.rollbacks) == (3, 0)
    assert same(learnt(model), before)
    model(images(5))
    assert asked == [SIZE] * (met + 1)


def test_too_few_samples_tell_nothing():
    for size, refused in ((8, 0), (9, 1)):
        model = adapter("tema", update="every")
        model(frames(size=size))
        assert model.signals.refused == refused


def test_small_batches_are_judged_when_they_have_been_gathered():
    model = adapter("tema", update="auto")
    for seed in range(16):
        model(frames(size=4, seed=seed))
    assert model.signals.refused == 1  # of 64 samples
    assert not flatten(model.state_dict()["statistics"])


def test_a_window_that_shows_nothing_is_not_kept():
    model, never = adapter("tema", update="window", length=32), adapter("tema", update="window", length=32)
    for x in (images(0), images(1)):
        model(x)
        never(x)
    for seed in range(4):
        model(frames(seed=seed, size=64))
    assert model.signals.refused == 4
    assert torch.equal(model(images(2)), never(images(2)))
    assert same(learnt(model), learnt(never))


def test_a_strong_shift_is_learnt_from_as_long_as_samples_differ():
    """Hardly any contrast, or too much of it; but one sees what is there."""
    for scale, offset in ((0.1, 0.0), (0.02, 2.0), (5.0, 0.0), (1.0, -3.0)):
        model = adapter("tema")
        model(images())
        model(scale * images(1) + offset)
        assert model.signals.skipped is None, (scale, offset)


def test_a_still_scene_near_the_source_is_learnt_from():
    model, scene = adapter("tema"), images(1).mean(0, keepdim=True)
    model(images())
    near = scene + 0.42 * torch.randn(1, 10, 12, 12, generator=torch.Generator().manual_seed(0))
    model(near + frames(0.0, 0.001))
    assert model.signals.skipped is None


@pytest.mark.parametrize(("guard", "asked"), [(Guard(), [20]), (Guard(alike=0), [])])
def test_the_source_runs_only_where_the_batch_is_far(guard, asked, monkeypatch):
    model = adapter("tema", guard=guard)
    model(images())
    runs = counting(monkeypatch, "logits_of_source")
    for x in (images(1) - 0.2, frames(size=20)):
        model(x)
    assert runs == asked


def test_a_source_that_fails_leaves_everything_as_it_was(monkeypatch):
    model = adapter("tent+delta")
    model(images())
    before = flatten(model.state_dict())

    def fails(self, x):
        raise RuntimeError("no memory")

    with monkeypatch.context() as broken:
        broken.setattr(Updater, "logits_of_source", fails)
        with pytest.raises(RuntimeError, match="no memory"):
            model(frames())
    assert same(flatten(model.state_dict()), before)
    assert model._updater.adapted.phase.sums is None  # or every run of the source would add to it
    model(frames())
    assert model.signals.refused == 1


def test_it_goes_on_after_a_save():
    first, second = adapter("tema"), adapter("tema")
    first(images())
    first(frames())
    second.load_state_dict(first.state_dict())
    second(frames())
    assert second.signals.refused == 2


def test_the_source_runs_under_the_callers_autocast():
    """Half-precision images, weights in float32: without autocast the model cannot run."""
    net = nn.Sequential(nn.Conv2d(10, 10, 1, bias=False), *channel_net())
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(10).view(10, 10, 1, 1))
    for background in (False, True):
        model = adapter("tent+delta", net, background=background)
        with torch.autocast("cpu", torch.bfloat16):
            model(images().bfloat16())
            model(frames().bfloat16())
        assert model.signals.skipped == blank.SHOWS_NOTHING
        model.unload()


def test_a_model_that_was_never_trained_adapts_to_noise():
    """Its statistics say nothing about what is usual; whoever tries the library with it should see it adapt."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = adapter("tent+delta", net, lr=1e-3)
    for seed in range(3):
        model(0.3 * torch.randn(SIZE, 3, 16, 16, generator=torch.Generator().manual_seed(seed)))
    assert model.signals.refused == 0
    assert not blank.has_trained_statistics(nn.BatchNorm2d(3))
    assert not blank.has_trained_statistics(nn.BatchNorm2d(3, track_running_stats=False))
    assert blank.has_trained_statistics(channel_net()[0])


@pytest.mark.parametrize(
    ("samples", "met", "distance", "variety", "found"),
    [
        (9, (12.1, 100), 31.0, 3.9, True),
        (9, (11.9, 100), 31.0, 3.9, False),
        (8, (99.0, 100), 31.0, 3.9, False),
        (64, (0.0, 0), 31.0, 3.9, False),
        (64, (12.1, 100), 31.0, 4.1, False),
        (64, (12.1, 100), 29.0, 0.0, False),
        (64, (99.0, 100), float("nan"), 0.0, False),
    ],
)
def test_the_limits(samples, met, distance, variety, found):
    blanks = blank.BlankDetector(adapter("tema")._updater.adapted, 0.04)
    blanks._distance = lambda: met
    blanks._shift = lambda of_source: Shift(distance=distance, variety=variety, channels=100)
    assert blanks.found(samples, images) == found
