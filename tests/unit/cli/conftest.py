"""Commands run in a folder of their own; they share one cache of corrupted images."""

import pytest

from laboratory import place


@pytest.fixture(autouse=True, scope="session")
def _one_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DELTA_TTA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(tmp_path):
    """Options of `run` that take some milliseconds."""
    where = place(tmp_path / "place")
    options = ["--data", "cifar", "-c", "contrast", "-b", "10", "--scenario", "IS+CB", "--workers", "0"]
    return ["run", *options, "--path", where.path, "--model", where.model, "--store", "s.db"]
