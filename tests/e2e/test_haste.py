"""The guard on images: the embedded ones, saturated, one class after the other or shuffled."""

import math

import pytest
import torch

import delta_tta
from delta_tta import data, models
from delta_tta.guard import Guard
from delta_tta.streams import stream

COUNT = 640


@pytest.fixture(scope="module")
def images():
    return data.Fewer(data.Corrupted(data.demo(), "saturate", severity=5), COUNT)


@pytest.fixture(scope="module")
def batches(images):
    return list(images.batches(list(stream(images.labels, "DS+CB", rho=0.01, seed=2020)), 64))


@pytest.fixture(scope="module")
def shuffled(images):
    return list(images.batches(list(stream(images.labels, "IS+CB", seed=2020)), 64))


def right(method, batches, **settings):
    named = models.load("resnet20-cifar10")
    model = delta_tta.adapt(named.model, method, "cifar10-c", **settings)
    answers = [model(named.normalisation(x)).argmax(1) for x, _ in batches]
    labels = torch.cat([y for _, y in batches])
    return model, int((torch.cat(answers) == labels).sum())


@pytest.mark.parametrize("scale", [255, 1 / 255])
def test_images_scaled_wrongly_are_answered_and_not_learnt_from(shuffled, scale):
    named = models.load("resnet20-cifar10")
    model = delta_tta.adapt(named.model, "tema", "cifar10-c")
    model(named.normalisation(shuffled[0][0]))
    before = model.state_dict()["statistics"]
    model(scale * named.normalisation(shuffled[1][0]))
    assert model.signals.skipped.startswith("out of proportion: features")
    after = model.state_dict()["statistics"]
    assert all(torch.equal(after[name][key], value) for name, kept in before.items() for key, value in kept.items())


def test_one_class_for_minutes_is_healthy_and_far_from_haste(batches):
    _, alone = right("tent+delta", batches, guard="off")
    model, watched = right("tent+delta", batches)
    assert watched == alone
    assert (model.signals.rollbacks, model.signals.refused) == (0, 0)
    limit = Guard().drift * math.sqrt(len(batches) / Guard().every)
    assert 0 < model._watch._measured_drift() < limit / 5


@pytest.mark.parametrize("method", ["tent+tema", "tent+delta", "ent-w+delta"])
def test_ten_times_the_learning_rate_is_noticed_before_it_does_harm(method, batches):
    _, source = right("source", batches)
    model, watched = right(method, batches, lr=1e-2)
    _, alone = right(method, batches, lr=1e-2, guard="off")
    assert model.signals.rollbacks == 1
    assert watched >= source - COUNT / 100
    assert watched > alone


def test_statistics_of_each_batch_are_given_up_where_they_mislead_and_only_there(batches, shuffled):
    method = "bn"  # `tent` gets the same layers
    _, source = right("source", batches)
    _, alone = right(method, batches, guard="off")
    model, watched = right(method, batches)
    assert alone < 0.7 * source
    assert watched >= source - COUNT / 100
    assert model.signals.dependent

    _, alone = right(method, shuffled, guard="off")
    model, watched = right(method, shuffled)
    assert watched == alone
    assert not model.signals.dependent
