"""An adapter with its checkpoints: when they are due, what they bring back, and folders that fail."""

import pytest
import torch

import delta_tta
from delta_tta.serve.inference import RefusedError
from delta_tta.serve.streams import SNAPSHOT, Maker, Slot, folder_of
from nets import batches, conv_net


def made(folder=None, every=3, identity="shared", **settings):
    return Slot(identity, delta_tta.adapt(conv_net(), "tent+delta", **settings), folder, every, 2)


def learn(slot, count=1, seed=0):
    for x in batches(count, seed=seed):
        slot.adapter(x)
        slot.samples, slot.batches = slot.samples + len(x), slot.batches + 1


def checksum(slot):
    return slot.adapter.state_dict()["checksum"]


@pytest.mark.parametrize("name", ["a", "../b", "/etc/passwd", "c d", "é", ".", "..", "a%2Fb"])
def test_the_folder_of_a_stream_lies_in_the_root(tmp_path, name):
    folder = folder_of(tmp_path, name)
    assert folder.parent == tmp_path
    folder.mkdir()
    assert [one.name for one in tmp_path.iterdir()] == [folder.name]


def test_different_streams_have_different_folders(tmp_path):
    names = ["a", "A", "a/b", "a%2Fb", "a b", "a+b"]
    assert len({folder_of(tmp_path, name) for name in names}) == len(names)


def test_a_checkpoint_is_due_after_so_many_batches_or_so_much_time(tmp_path):
    slot = made(tmp_path)
    assert not slot.full()
    assert not slot.due(0)
    learn(slot)
    assert not slot.full()
    assert slot.due(0)
    assert not slot.due(1000)
    learn(slot, 2)
    assert (slot.full(), slot.unsaved) == (True, 3)
    assert slot.save()
    assert (slot.full(), slot.due(0), slot.unsaved, slot.saved_step) == (False, False, 0, 3)


def test_without_a_folder_nothing_is_due_and_nothing_is_lost():
    slot = made()
    learn(slot, 3)
    assert (slot.full(), slot.due(0), slot.resumed, slot.failures, slot.error) == (False, False, False, 0, None)
    assert not slot.save()
    assert slot.close()


def test_it_continues_from_its_checkpoint(tmp_path):
    first = made(tmp_path)
    assert not first.resumed
    learn(first, 2)
    assert first.close()  # saves
    second = made(tmp_path)
    assert second.resumed
    assert checksum(second) == checksum(first)
    assert second.saved_step == 2


def test_a_folder_that_cannot_be_made_is_tried_again(tmp_path, caplog):
    (tmp_path / "file").touch()
    slot = made(tmp_path / "file")
    assert isinstance(slot.error, OSError)
    assert "cannot be kept; the stream goes on unsaved" in caplog.text
    learn(slot)
    assert not slot.save()
    assert not slot.close()
    assert slot.failures == 3
    (tmp_path / "file").unlink()
    assert slot.save()
    assert slot.error is None
    assert slot.close()


def test_a_snapshot_is_gone_back_to_also_by_the_next_process(tmp_path):
    slot = made(tmp_path)
    learn(slot)
    kept = checksum(slot)
    assert slot.snapshot() == "on disk"
    assert (tmp_path / SNAPSHOT).is_file()
    learn(slot, seed=1)
    assert checksum(slot) != kept
    assert slot.rollback() == "the last snapshot"
    assert checksum(slot) == kept
    assert slot.unsaved == 0  # what was taken back must not come again after a crash
    learn(slot, seed=1)
    slot.close()
    again = made(tmp_path)
    assert checksum(again) != kept
    assert again.rollback() == "the last snapshot"
    assert checksum(again) == kept


def test_without_a_snapshot_it_goes_back_to_the_last_checkpoint(tmp_path):
    slot = made(tmp_path)
    learn(slot)
    slot.save()
    kept = checksum(slot)
    learn(slot, seed=1)
    assert slot.rollback().startswith("the checkpoint step-")
    assert checksum(slot) == kept
    with pytest.raises(RefusedError, match="no snapshot and no checkpoint"):
        made().rollback()


def test_a_reset_is_saved_at_once(tmp_path):
    slot = made(tmp_path)
    fresh = checksum(slot)
    learn(slot)
    slot.save()
    slot.reset()
    assert checksum(slot) == fresh
    slot.close()
    assert checksum(made(tmp_path)) == fresh


def test_each_stream_gets_an_adapter_and_a_folder(tmp_path):
    maker = Maker(lambda: delta_tta.adapt(conv_net(), "tent"), tmp_path, 3, 2)
    shared, left, right = maker.shared(), maker.separate("left"), maker.separate("right")
    assert [one.identity for one in (shared, left, right)] == ["shared", "left", "right"]
    assert {one.folder for one in (shared, left, right)} == {
        tmp_path / "shared",
        folder_of(tmp_path, "left"),
        folder_of(tmp_path, "right"),
    }
    (x,) = batches(1)
    left.adapter(x)
    assert torch.equal(right.adapter.predict(x), maker.trial().predict(x))
    assert Maker(maker.trial, None, 3, 2).shared().folder is None
