"""Finished runs for TensorBoard."""

import pytest

from command import run

SMALL = ["--images", "100", "--batch-size", "50", "--scenario", "IS+CB", "--workers", "0"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="module")
def _one_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTA_TTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def test_tensorboard_gets_every_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run("run", "-m", "source", "-m", "bn", *SMALL, "--tensorboard", "board")
    folders = sorted((tmp_path / "board").iterdir())
    assert len(folders) == 2
    events = EventAccumulator(str(folders[0]))
    events.Reload()
    assert "class_mean_accuracy" in events.Tags()["scalars"]
    assert len(events.Scalars("accuracy over the stream")) > 10
