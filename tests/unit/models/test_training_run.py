"""A training that is stopped and goes on ends as an unbroken one; what does not fit is refused."""

import pytest
import torch
from torch import nn

from delta_tta import data
from delta_tta.errors import DataError, InputError, ModelError, SettingError
from delta_tta.models.start import start
from delta_tta.models.train import checkpoint_of, train
from delta_tta.models.training import Training
from delta_tta.models.weights import weights_file
from folders import write_images, write_network

COUNTS = {"cat": 9, "dog": 4, "ship": 8}
QUICK = Training(epochs=3, batch_size=6, lr=0.05)


@pytest.fixture
def images(tmp_path):
    return data.folder(write_images(tmp_path / "images", COUNTS), size=None)


@pytest.fixture
def network(tmp_path):
    return write_network(tmp_path)


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


def test_no_batch_is_of_one_image(network, tmp_path):
    images = data.folder(write_images(tmp_path / "images", {"cat": 3, "dog": 2}), size=None)
    seen = []
    settings = Training(epochs=1, batch_size=2)
    train(images, start(network, classes=2)[0], tmp_path / "a.safetensors", settings, on_progress=seen.append)
    assert [one.images for one in seen] == [3, 5]


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
