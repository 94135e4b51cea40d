"""Where comparisons keep their results."""

import pytest

from delta_tta.cli.support.keep import KEPT, kept_store
from laboratory import cell, place, result


def test_the_newest_comparisons_stay(tmp_path, monkeypatch):
    where, cache = place(tmp_path / "place"), tmp_path / "cache"
    (cache / "compared").mkdir(parents=True)
    for day in range(10, 10 + KEPT):
        for end in ("", "-wal"):
            (cache / "compared" / f"2020-01-{day}-000000-1.db{end}").touch()
    with pytest.raises(ArithmeticError), kept_store(cache):
        raise ArithmeticError
    assert len(list((cache / "compared").iterdir())) == 2 * KEPT  # without results nothing is kept
    with kept_store(cache) as store:
        store.record("a", cell(where), result())
    names = {path.name for path in (cache / "compared").iterdir()}
    assert len(names) == 2 * KEPT - 1
    assert store.path.name in names
    assert not any(name.startswith("2020-01-10") for name in names)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    with kept_store(tmp_path / "file") as store:  # no folder can be made there
        store.record("a", cell(where), result())
    assert store.path.exists()
