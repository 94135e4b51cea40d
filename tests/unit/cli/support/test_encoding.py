"""Outputs that know fewer letters than we write."""

import io

import pytest

from delta_tta.cli.support.encoding import lenient, plain


@pytest.mark.parametrize(("letter", "ascii_"), [("▼", "-"), ("λ", "lambda"), ("Π", "pi"), ("é", "e"), ("汉", "?")])
def test_the_nearest_in_ascii(letter, ascii_):
    assert plain(letter) == ascii_


def test_who_asks_for_another_way_to_write_gets_it(monkeypatch):
    ours, theirs = (io.TextIOWrapper(io.BytesIO(), "ascii", errors) for errors in ("strict", "replace"))
    monkeypatch.setattr("sys.stdout", ours)
    monkeypatch.setattr("sys.stderr", theirs)
    lenient()
    for stream, written in ((ours, b"rho"), (theirs, b"?")):
        stream.write("ρ")
        stream.flush()
        assert stream.buffer.getvalue() == written
