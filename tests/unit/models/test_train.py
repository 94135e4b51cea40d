"""Training: the loss is its formula, a broken training ends as an unbroken one, and what does not fit is refused."""

import json
import math
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

from delta_tta import data, models
from delta_tta.errors import DataError, InputError, ModelError, SettingError
from delta_tta.models.start import start
from delta_tta.models.train import checkpoint_of, train
from delta_tta.models.training import Training, adjusted_loss, learning_rate, log_prior
from delta_tta.models.weights import fill, read_weights, weights_file
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


def test_the_loss_is_the_logit_adjusted_softmax_cross_entropy(images):
    torch.manual_seed(0)
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    shares = [count / 21 for count in COUNTS.values()]
    for adjust in (0.0, 0.5, 1.0):
        expected = 0.0  # −log of π_y^τ e^{f_y} / Σ_k π_k^τ e^{f_k}, the mean over the batch
        for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
            terms = [share**adjust * math.exp(logit) for share, logit in zip(shares, row, strict=True)]
            expected -= math.log(terms[label] / sum(terms)) / len(labels)
        assert float(adjusted_loss(logits, labels, log_prior(images), adjust)) == pytest.approx(expected, rel=1e-6)
    assert float(adjusted_loss(logits, labels, log_prior(images), 0.0)) == float(
        nn.functional.cross_entropy(logits, labels)
    )


def test_the_rate_rises_to_its_peak_and_falls_to_nothing():
    rates = [learning_rate(step / 1000, 0.4) for step in range(1001)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[100] == pytest.approx(0.4)
    assert rates[550] == pytest.approx(0.2)
    assert rates[1000] == pytest.approx(0)
    assert np.all(np.diff(rates[:101]) > 0)
    assert np.all(np.diff(rates[100:]) < 0)


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


class StopError(Exception):
    pass


@pytest.mark.parametrize("stop_at", [(1, 2), (2, 4), (3, 1), (3, 4)])
def test_broken_at_any_step_it_ends_as_if_it_never_had_been(stop_at, images, network, tmp_path):
    def break_off(now):
        if (now.epoch, now.step) == stop_at:
            raise StopError

    state = torch.get_rng_state()
    train(images, start(network, classes=3)[0], tmp_path / "whole.safetensors", QUICK)
    assert torch.equal(torch.get_rng_state(), state), "the user's random numbers are left alone"
    broken = tmp_path / "broken.safetensors"
    with pytest.raises(StopError):
        train(images, start(network, classes=3)[0], broken, QUICK, minutes=0, workers=1, on_progress=break_off)
    assert not broken.exists()
    (tmp_path / ".broken.safetensors.resume.1-2.tmp").touch()  # as kill -9 leaves it
    seen = []
    torch.manual_seed(99)
    train(images, start(network, classes=3)[0], broken, QUICK, minutes=0, on_progress=seen.append)
    assert broken.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert len(seen) < 12
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".broken", "broken.safetensors.r"))]


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


def test_no_batch_is_of_one_image(network, tmp_path):
    images = data.folder(write_images(tmp_path / "images", {"cat": 3, "dog": 2}), size=None)
    seen = []
    settings = Training(epochs=1, batch_size=2)
    train(images, start(network, classes=2)[0], tmp_path / "a.safetensors", settings, on_progress=seen.append)
    assert [one.images for one in seen] == [3, 5]


def test_another_seed_ends_elsewhere(images, network, tmp_path):
    files = [tmp_path / f"{seed}.safetensors" for seed in (0, 1)]
    for seed, file in enumerate(files):
        named, _ = start(network, classes=3)  # the same first weights
        train(images, named, file, Training(epochs=1, batch_size=6, seed=seed))
    one, other = (read_weights(file)[0] for file in files)
    assert not torch.equal(one["6.weight"], other["6.weight"])


def unfinished(images, network, out, settings=QUICK):
    def break_off(now):
        raise StopError

    with pytest.raises(StopError):
        train(images, start(network, classes=3)[0], out, settings, on_progress=break_off)
    return checkpoint_of(out)


def test_a_state_that_is_cut_or_of_another_training_is_refused(images, network, tmp_path):
    out = tmp_path / "net.safetensors"
    state = unfinished(images, network, out)
    content = state.read_bytes()
    for change, named in ((Training(epochs=4, batch_size=6, lr=0.05), start(network, classes=3)[0]),
                          (QUICK, start(network, classes=3, seed=1)[0])):  # fmt: skip
        with pytest.raises(
            DataError, match=r"other settings: (epochs 3, now 4|first weights .*). Go on with those .* or rem"
        ):
            train(images, named, out, change)
    fewer = data.folder(tmp_path / "images", size=None, classes=["ship", "dog", "cat"])
    with pytest.raises(DataError, match="other settings: images "):
        train(fewer, start(network, classes=3)[0], out, QUICK)
    assert state.read_bytes() == content
    for wrong, words in (
        (content[:2000], "not an intact state of a training .* remove it to begin anew"),
        (b"", "not an intact state"),
        (content.replace(b"momentum", b"momentun"), "not an intact state"),
    ):
        assert wrong != content
        state.write_bytes(wrong)
        with pytest.raises(DataError, match=words):
            train(images, start(network, classes=3)[0], out, QUICK)
        assert state.read_bytes() == wrong
    torch.save({"weight": torch.ones(2)}, state)
    with pytest.raises(DataError, match="not the state of a training; write to another file"):
        train(images, start(network, classes=3)[0], out, QUICK)


def test_a_file_of_something_else_is_never_written_over(images, network, tmp_path):
    out = tmp_path / "net.safetensors"
    out.write_bytes(weights_file(nn.Linear(2, 2), {"by": "hand"}))
    with pytest.raises(DataError, match="exists and is not of `delta-tta train`"):
        train(images, start(network, classes=3)[0], out, QUICK)
    with pytest.raises(SettingError, match=r"ends in \.safetensors"):
        train(images, start(network, classes=3)[0], tmp_path / "net.pt", QUICK)
    assert not checkpoint_of(tmp_path / "net.pt").exists()


def test_a_training_that_diverges_says_so_and_leaves_nothing(images, network, tmp_path):
    out = tmp_path / "net.safetensors"
    with pytest.raises(SettingError, match=r"The loss is (nan|inf) in epoch .* lower `lr` than 1e\+30"):
        train(images, start(network, classes=3)[0], out, Training(epochs=3, batch_size=6, lr=1e30))
    assert not checkpoint_of(out).exists()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epochs": 0}, "`epochs` to be an integer of at least 1, but got 0"),
        ({"batch_size": 1}, "`batch_size` to be an integer of at least 2"),
        ({"lr": 0}, "`lr` to be a number above 0"),
        ({"adjust": -1}, "`adjust` to be a number of at least 0"),
        ({"decay": math.nan}, "`decay` to be a number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, words):
    with pytest.raises(SettingError, match=words):
        Training(**wrong)


def test_images_and_networks_that_do_not_fit_are_refused(images, network, tmp_path):
    out = tmp_path / "net.safetensors"
    with pytest.raises(ModelError, match=r"\(1, 3\) logits, one for each class of images, but got \(1, 7\)"):
        train(images, start(network.replace("make", "stubborn"), classes=3)[0], out)
    few = data.ArraySet("few", images.take([0, 1]), [0, 0], ["cat", "dog"])
    with pytest.raises(DataError, match="some of each, but 'dog' has none"):
        train(few, start(network, classes=2)[0], out)
    with pytest.raises(DataError, match="held-out images to have the classes"):
        train(images, start(network, classes=3)[0], out, val=few)
    with pytest.raises(InputError, match="does not say how its inputs are normalised"):
        start(network.replace("make", "silent"), classes=3)
    assert not checkpoint_of(out).exists()


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


def two_layers(inner, outputs):
    return nn.Sequential(nn.Linear(2, inner), nn.Linear(inner, outputs))


def test_weights_of_another_number_of_classes_bring_all_but_the_last_layer(tmp_path):
    named, new = start("resnet20", "resnet20-cifar100", classes=10)
    assert new == ["fc.weight", "fc.bias"]
    theirs, ours = models.load("resnet20-cifar100").model.state_dict(), named.model.state_dict()
    assert [key for key in ours if not torch.equal(ours[key], theirs[key])] == new
    assert ours["fc.weight"].shape == (10, 64)
    assert named.normalisation.mean == models.load("resnet20-cifar100").normalisation.mean
    assert start("resnet20", "resnet20-cifar10", classes=10)[1] == []
    torch.save(models.load("resnet20-cifar10").model.state_dict(), tmp_path / "ten.pt")
    assert start("resnet20", str(tmp_path / "ten.pt"), classes=3)[1] == new
    with pytest.raises(ModelError, match=r"do not fit CifarResNet: .* missing"):
        start("resnet32", "resnet20-cifar10", classes=10)
    with pytest.raises(ModelError, match=r"4 of another shape, such as .*weight"):  # two layers: no new head
        fill(two_layers(3, 4), two_layers(5, 6).state_dict(), "x", new_head=True)
    with pytest.raises(DataError, match=r"Expected weights at nowhere\.pt"):
        start("resnet20", "nowhere.pt", classes=10)


def test_published_weights_are_those_that_load_takes_by_itself(network):
    named, new = start(network.replace("make", "ready"), "published", classes=3)
    assert new == ["6.weight", "6.bias"]
    assert torch.all(named.model[0].weight == 0.25)
    assert named.weights == "published"
    with pytest.raises(ModelError, match="'resnet20' is an architecture; give `weights`"):
        start("resnet20", "published", classes=3)


def test_the_first_weights_come_from_the_seed_alone():
    one, same, other = (start("resnet20", classes=4, seed=seed)[0].model.state_dict() for seed in (5, 5, 6))
    assert torch.equal(one["conv1.weight"], same["conv1.weight"])
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])


def test_the_papers_network_for_video_can_be_trained_and_loaded(tmp_path):
    assert torchvision
    images = data.folder(write_images(tmp_path / "images", {"cat": 3, "dog": 2}), size=96)  # scaled parts, not shifts
    out = tmp_path / "ytbb.safetensors"
    train(images, start("torchvision:resnet18", classes=2)[0], out, Training(epochs=1, batch_size=3))
    named = models.load("torchvision:resnet18", out, classes=2)
    assert named.model(torch.zeros(1, 3, 96, 96)).shape == (1, 2)
    assert named.model.class_names == ("cat", "dog")
