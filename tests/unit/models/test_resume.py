"""The state of an unfinished training."""

import pytest
import torch

from delta_tta import data
from delta_tta.errors import DataError
from delta_tta.models.start import start
from delta_tta.models.train import checkpoint_of, train
from delta_tta.models.training import Training
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
