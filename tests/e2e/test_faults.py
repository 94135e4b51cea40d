"""Real faults: processes killed while they save, full disks, files cut, changed or hostile, workers that fail."""

import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import delta_tta
from all_methods import assert_same_state
from delta_tta import Checkpointer, DataError, StateError, load_state, models, save_state
from delta_tta.models.cifar import CifarResNet
from delta_tta.models.weights import read_weights
from nets import batches, conv_net, flat_net, same, same_state

SERVICE = Path(__file__).parent / "service.py"


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    """What the service saw in its many lives."""
    run = subprocess.run(
        [sys.executable, "-W", "error", SERVICE, tmp_path_factory.mktemp("service")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.slow
@pytest.mark.xdist_group("service")
def test_a_service_killed_at_random_moments_goes_on_as_if_it_had_never_stopped(lives):
    seen = lives["killed at random"]
    assert seen["kills"] == 30
    assert seen["leftovers"] > 0  # some were killed in the middle of a file
    assert seen["steps"] > 0


@pytest.mark.slow
@pytest.mark.xdist_group("service")
def test_a_service_killed_at_any_line_of_saving_leaves_the_old_or_the_new_file_whole(lives):
    seen = lives["killed at each line"]
    assert seen["old"] > 10
    assert seen["new"] > 3
    assert seen["lines"] + 1 == seen["old"] + seen["new"]


@pytest.mark.slow
@pytest.mark.xdist_group("service")
def test_a_limit_on_the_size_of_files_stops_no_stream_and_leaves_no_half_file(lives):
    assert lives["under a limit"] == {"failures": 4, "newest": 6}


def test_a_full_disk_stops_no_stream_and_costs_no_checkpoint(small_disk, caplog):
    def make():
        return delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", update="window", length=24)

    adapter, reference = make(), make()
    xs = batches(8)
    checkpoints = Checkpointer(small_disk, every=1, keep=1).attach(adapter)
    for x in xs[:2]:
        assert torch.equal(adapter(x), reference(x))
    (last,) = small_disk.iterdir()
    room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    assert last.stat().st_size + 4096 < room
    content = last.read_bytes()
    for i, left in enumerate((8192, 4096, 0)):
        (small_disk / "filler").write_bytes(b"x" * (room - left))
        assert torch.equal(adapter(xs[2 + i]), reference(xs[2 + i]))
        assert "No space left" in str(checkpoints.last_error)
        assert sorted(path.name for path in small_disk.iterdir()) == ["filler", last.name]
    assert last.read_bytes() == content
    assert checkpoints.failures == 3
    assert len(caplog.records) == 1
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save()
    resumed = make()
    assert Checkpointer(small_disk).attach(resumed).step == 2
    (small_disk / "filler").unlink()
    assert torch.equal(adapter(xs[5]), reference(xs[5]))
    assert (checkpoints.failures, checkpoints.last_error) == (3, None)
    Checkpointer(small_disk).attach(resumed)
    assert same_state(resumed, adapter)


@pytest.fixture
def saved(tmp_path):
    """An adapter that has learnt something, and the file that says so."""
    adapter = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c")
    for x in batches(2):
        adapter(x)
    save_state(adapter, tmp_path / "state.pt")
    return adapter, tmp_path / "state.pt"


def test_a_file_cut_at_any_length_is_refused(saved):
    adapter, path = saved
    whole, before = path.read_bytes(), adapter.state_dict()
    for length in [*range(0, len(whole), 101), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(StateError, match="not an intact state"):
            load_state(adapter, path)
    assert_same_state(adapter.state_dict(), before)
    for more in (b"\0", b"more"):
        path.write_bytes(whole + more)
        try:
            load_state(adapter, path)
        except StateError:
            continue
        assert_same_state(adapter.state_dict(), before)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")  # it wonders at some of them
def test_a_file_with_one_byte_changed_is_refused_or_the_byte_means_nothing(saved):
    adapter, path = saved
    whole, before = path.read_bytes(), adapter.state_dict()
    other = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c")
    fresh, refused, chance = other.state_dict(), 0, random.Random(0)
    for place in range(0, len(whole), 37):
        changed = bytearray(whole)
        changed[place] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            load_state(other, path)
        except StateError:
            refused += 1
            assert_same_state(other.state_dict(), fresh)
        else:
            assert_same_state(other.state_dict(), before)
            other.load_state_dict(fresh)
    assert refused > 60  # the rest is the padding between tensors


class Hostile:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def hostile_files(folder, content):
    """Files that a careless reader would run: torch's own format, with and without good content, and plain pickle."""
    mark = folder / "it ran"
    for number, value in enumerate(({**content, "more": Hostile(mark)}, Hostile(mark), [content, Hostile(mark)])):
        torch.save(value, folder / f"step-00000000{number + 1}.pt")
        torch.save(value, folder / f"step-00000001{number}.pt", _use_new_zipfile_serialization=False)
        (folder / f"step-00000002{number}.pt").write_bytes(pickle.dumps(value))
    pickle.loads((folder / "step-000000021.pt").read_bytes())
    assert mark.exists()  # so they do
    mark.unlink()
    return mark, sorted(folder.glob("step-*.pt"))


def test_a_hostile_file_is_refused_and_nothing_runs(saved, tmp_path, caplog):
    adapter, path = saved
    before = adapter.state_dict()
    folder = tmp_path / "folder"
    folder.mkdir()
    mark, files = hostile_files(folder, before)
    assert len(files) == 9
    for file in files:
        with pytest.raises(StateError, match="without running code"):
            load_state(adapter, file)
    assert_same_state(adapter.state_dict(), before)
    path.rename(folder / "step-000000000.pt")
    other = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c")
    assert Checkpointer(folder).attach(other).resumed == folder / "step-000000000.pt"
    assert same_state(other, adapter)
    assert len(caplog.records) == len(list(folder.glob("*.damaged"))) == 9
    assert not mark.exists()


def test_hostile_weights_are_refused_and_nothing_runs(tmp_path):
    mark, files = hostile_files(tmp_path, CifarResNet(20).state_dict())
    for file in files:
        with pytest.raises(DataError, match="without running code"):
            models.load("resnet20", file)
    assert not mark.exists()


def small_net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
def test_weights_cut_at_any_length_are_refused(tmp_path, name):
    path, weights = tmp_path / name, small_net().state_dict()
    save_file(weights, path) if name.endswith("safetensors") else torch.save(weights, path)
    whole = path.read_bytes()
    assert same(read_weights(path)[0], weights)
    for length in [*range(0, len(whole), 53), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="not an intact weights file"):
            read_weights(path)


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
def test_weights_with_one_byte_changed_are_refused_or_the_byte_means_nothing(tmp_path):
    path, weights, refused, chance = tmp_path / "weights.pt", small_net().state_dict(), 0, random.Random(0)
    torch.save(weights, path)
    whole = path.read_bytes()
    marked_as_folder = whole.index(b"weights/data/0", whole.index(b"PK\1\2")) - 8  # in the archive's table of contents
    for place in [*range(0, len(whole), 23), marked_as_folder]:
        changed = bytearray(whole)
        changed[place] ^= 16 if place == marked_as_folder else 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            assert same(read_weights(path)[0], weights)
        except DataError:
            refused += 1
    assert place == marked_as_folder
    assert refused > 50
    with pytest.raises(DataError, match="does not match its checksum"):
        read_weights(path)


class Failing(nn.Module):
    """Raises in the backward pass, when told to."""

    error = None

    def forward(self, x):
        if x.requires_grad:
            x.register_hook(self.back)
        return x

    def back(self, _):
        if self.error is not None:
            raise self.error


class OutOfNowhere(BaseException):
    """Not an Exception, as few are."""


@pytest.mark.parametrize("update", ["every", "slow", "window"])
@pytest.mark.parametrize("kind", [ArithmeticError, MemoryError, SystemExit, KeyboardInterrupt, OutOfNowhere])
def test_whatever_a_worker_raises_reaches_the_next_call_and_the_adapter_goes_on(kind, update):
    net, part = flat_net(), Failing()
    net.insert(3, part)
    settings = {"lr": 0.1, "update": update, "length": 12}
    adapter = delta_tta.adapt(net, "tent+delta", background=True, **settings)
    reference = delta_tta.adapt(flat_net(), "tent+delta", **settings)
    a, b, c, d = batches(4, shape=(6,))
    adapter(a), reference(a)
    adapter.wait()
    before = {**adapter.state_dict(), "step": 2, "samples": 24, "checksum": None}  # b was answered, if not learnt
    part.error = kind("from the worker")
    assert torch.equal(adapter(b), reference.predict(b))
    adapter._worker.settled()  # it has raised, before the fault goes away
    part.error = None
    with pytest.raises(kind, match="from the worker"):
        adapter(c)
    assert_same_state({**adapter.state_dict(), "checksum": None}, before)
    for x in (c, d):
        assert torch.equal(adapter(x), reference(x))
    adapter.wait()
    assert torch.equal(adapter.predict(a), reference.predict(a))
