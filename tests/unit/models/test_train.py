"""Training: the loss is its formula, a broken training ends as an unbroken one, and what does not fit is refused."""

import json
import os
import signal

import pytest
import torch

from delta_tta import data, models
from delta_tta.errors import DataError
from delta_tta.models.start import start
from delta_tta.models.train import checkpoint_of, train
from delta_tta.models.training import Training
from delta_tta.models.weights import read_weights, weights_file
from folders import write_images, write_network
from vision import torchvision

COUNTS = {"cat": 9, "dog": 4, "ship": 8}
QUICK = Training(epochs=3, batch_size=6, lr=0.05)


@pytest.fixture
def images(tmp_path):
    return data.folder(write_images(tmp_path / "images", COUNTS), size=None)


@pytest.fixture
def network(tmp_path):
    return write_network(tmp_path)


def test_what_was_trained_can_be_loaded_and_says_what_it_is(images, network, tmp_path):
    out = tmp_path / "new" / "net.safetensors"
    seen = []
    trained = train(images, start(network, classes=3)[0], out, QUICK, val=images, on_progress=seen.append)
    assert [(one.epoch, one.step, one.steps) for one in seen] == [(e, s, 4) for e in (1, 2, 3) for s in (1, 2, 3, 4)]
    assert [one.class_mean_accuracy is not None for one in seen] == [False, False, False, True] * 3
    assert [one.images for one in seen][3::4] == [21, 42, 63]
    assert [path.name for path in out.parent.iterdir()] == [out.name], "the state is gone"

    named = models.load(network, out, classes=3)
    assert named.normalisation.std == (0.25, 0.25, 0.25)
    scores = [named.model(named.normalisation(x)).argmax(1) == y for x, y in images.batches(range(21), 21)]
    means = [scores[0][images.labels == label].float().mean().item() for label in range(3)]
    assert trained.class_mean_accuracy == pytest.approx(sum(means) / 3)
    card = read_weights(out)[1]
    assert card == trained.card
    assert json.loads(card["classes"]) == ["cat", "dog", "ship"]
    assert json.loads(card["images"]) == [9, 4, 8]
    assert (card["architecture"], card["size"]) == ("net.py:make", "32")
    assert json.loads(card["class_mean_accuracy"]) == trained.class_mean_accuracy == seen[-1].class_mean_accuracy
    assert str(tmp_path) not in json.dumps(card)

    content = out.read_bytes()
    again = train(images, start(network, classes=3)[0], out, QUICK, val=images, on_progress=seen.append)
    assert again.before
    assert (again.card, again.class_mean_accuracy) == (card, trained.class_mean_accuracy)
    assert (out.read_bytes(), len(seen)) == (content, 12)
    with pytest.raises(DataError, match=r"other settings: lr 0.05, now 0.1. Write to another file."):
        train(images, start(network, classes=3)[0], out, Training(epochs=3, batch_size=6), val=images)
    assert out.read_bytes() == content


@pytest.mark.parametrize(("times", "saved"), [(1, 2), (2, 0)])
def test_an_interrupt_waits_for_the_step_and_saves_but_a_second_does_not_wait(times, saved, images, network, tmp_path):
    def interrupt(now):
        for _ in range(times if now.step == 2 else 0):
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "net.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(images, start(network, classes=3)[0], out, QUICK, on_progress=interrupt)
    state = torch.load(checkpoint_of(out), weights_only=True)
    assert (state["epoch"], state["step"]) == (0, saved)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_seed_ends_elsewhere(images, network, tmp_path):
    files = [tmp_path / f"{seed}.safetensors" for seed in (0, 1)]
    for seed, file in enumerate(files):
        named, _ = start(network, classes=3)  # the same first weights
        train(images, named, file, Training(epochs=1, batch_size=6, seed=seed))
    one, other = (read_weights(file)[0] for file in files)
    assert not torch.equal(one["6.weight"], other["6.weight"])


def test_the_card_says_how_inputs_are_normalised(images, network, tmp_path):
    half = {"mean": (0.5, 0.4, 0.3), "std": (0.5, 0.5, 0.5)}
    out = tmp_path / "net.safetensors"
    named, _ = start(network.replace("make", "silent"), classes=3, **half)
    train(images, named, out, Training(epochs=1))
    for function in ("silent", "make"):  # one does not say, one says otherwise
        loaded = models.load(network.replace("make", function), out, classes=3)
        assert loaded.normalisation.mean == loaded.model.normalisation.mean == (0.5, 0.4, 0.3)
        assert data.normalisation_of(loaded.model).source == "the file's card"
    with pytest.warns(data.NormalisationWarning, match="but the model says"):
        given = models.load(network, out, classes=3, mean=(0.1, 0.1, 0.1), std=(0.2, 0.2, 0.2))
    assert given.normalisation.mean == data.normalisation_of(given.model).mean == (0.1, 0.1, 0.1)
    assert start(network, str(out), classes=3)[0].normalisation.mean == (0.5, 0.4, 0.3), "and the next starts from it"
    out.write_bytes(weights_file(named.model, {"mean": "[1]", "std": "x"}))
    with pytest.raises(DataError, match=r"net.safetensors: expected three numbers as mean and as std"):
        models.load(network, out, classes=3)


def test_the_papers_network_for_video_can_be_trained_and_loaded(tmp_path):
    assert torchvision
    images = data.folder(write_images(tmp_path / "images", {"cat": 3, "dog": 2}), size=96)  # scaled parts, not shifts
    out = tmp_path / "ytbb.safetensors"
    train(images, start("torchvision:resnet18", classes=2)[0], out, Training(epochs=1, batch_size=3))
    named = models.load("torchvision:resnet18", out, classes=2)
    assert named.model(torch.zeros(1, 3, 96, 96)).shape == (1, 2)
    assert named.model.class_names == ("cat", "dog")
