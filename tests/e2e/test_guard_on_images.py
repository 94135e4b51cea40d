"""The guard on images: the embedded ones, saturated, one class after the other or shuffled."""

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta import data, models
from delta_tta.streams import stream

COUNT = 640


@pytest.fixture(scope="module")
def images():
    return data.Subset(data.Corrupted(data.demo(), "saturate", severity=5), COUNT)


@pytest.fixture(scope="module")
def batches(images):
    return list(images.batches(list(stream(images.labels, "DS+CB", rho=0.01, seed=2020)), 64))


@pytest.fixture(scope="module")
def shuffled(images):
    return list(images.batches(list(stream(images.labels, "IS+CB", seed=2020)), 64))


def right(method, batches, guard="on", **settings):
    named = models.load("resnet20-cifar10")
    model = fitting(named.model, method, "cifar10-c", guard=guard, **settings)
    answers = [model(named.normalisation(x)).argmax(1) for x, _ in batches]
    labels = torch.cat([y for _, y in batches])
    return model, int((torch.cat(answers) == labels).sum())


@pytest.mark.parametrize("scale", [255, 1 / 255])
def test_images_scaled_wrongly_are_answered_and_not_learnt_from(shuffled, scale):
    named = models.load("resnet20-cifar10")
    model = delta_tta.adapt(named.model, "tema", "cifar10-c", guard="on")
    model(named.normalisation(shuffled[0][0]))
    before = model.state_dict()["statistics"]
    model(scale * named.normalisation(shuffled[1][0]))
    assert model.signals.skipped.startswith("out of proportion: features")
    after = model.state_dict()["statistics"]
    assert all(torch.equal(after[name][key], value) for name, kept in before.items() for key, value in kept.items())


@pytest.mark.slow
def test_one_class_for_minutes_is_healthy(batches):
    _, alone = right("tent+delta", batches, guard="off")
    model, watched = right("tent+delta", batches)
    assert watched == alone
    assert (model.signals.rollbacks, model.signals.refused) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tent+tema", "tent+delta"])
def test_a_hundred_times_the_learning_rate_is_undone(method, batches):
    model, watched = right(method, batches, lr=1e-1)
    _, alone = right(method, batches, guard="off", lr=1e-1)
    assert model.signals.rollbacks >= 1
    assert watched > alone + COUNT / 10


@pytest.mark.slow
def test_a_dependent_stream_is_worth_one_warning_where_batches_stand_alone(batches, shuffled, caplog):
    right("tent", shuffled, guard="off")
    right("tent+delta", batches, guard="off")
    assert not caplog.records
    right("tent", batches, guard="off")
    (record,) = caplog.records
    assert "'tent' normalises each batch by itself, which then misleads; write 'tent+anchored'" in record.getMessage()


def covered(level, noise):
    """What a camera delivers whose lens is covered."""
    exact = level + noise * torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return exact.round().clamp(0, 255).to(torch.uint8), torch.full((64,), -1)  # nothing is right


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tema", "tent+delta"])
def test_a_lens_that_was_covered_costs_nothing(method, shuffled):
    interrupted = [*shuffled[:5], *[covered(0, 16)] * 10, *shuffled[5:]]
    model, watched = right(method, interrupted)
    assert model.signals.refused == 10
    assert watched == right(method, shuffled)[1]
    assert right(method, interrupted, guard="off")[1] < watched - COUNT / 10


@pytest.mark.parametrize(("level", "noise"), [(0, 0), (0, 25), (128, 8), (128, 25), (128, 64), (255, 0), (255, 25)])
def test_frames_that_show_nothing_are_told_from_images(level, noise, shuffled):
    model, _ = right("tema", [*shuffled[:2], covered(level, noise)])
    assert model.signals.skipped.startswith("shows nothing")


@pytest.mark.parametrize("order", ["IS+CB", "DS+CB"])
def test_hardly_any_contrast_is_not_nothing(order):
    images = data.Subset(data.Corrupted(data.demo(), "contrast", severity=5), 320)
    batches = list(images.batches(list(stream(images.labels, order, rho=0.01 if order == "DS+CB" else None)), 32))
    assert right("tema", batches)[0].signals.refused == 0


def test_a_still_scene_is_not_nothing(shuffled):
    scenes = [(x[i : i + 1].expand(64, -1, -1, -1), y) for x, y in shuffled[:2] for i in range(4)]
    assert right("tema", [shuffled[2], *scenes])[0].signals.refused == 0
