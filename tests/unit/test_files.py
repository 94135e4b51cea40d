"""What every part of the package needs of files."""

import hashlib
import json
import os

import numpy as np
import pytest

from delta_tta.files import UNFINISHED, digest, fingerprint, json_safe, write_text, write_whole


@pytest.mark.parametrize("wait", [True, False])
def test_while_a_file_is_written_the_old_one_stays(tmp_path, wait):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fill(file):
        (beside,) = (one for one in tmp_path.iterdir() if one != path)
        assert UNFINISHED.fullmatch(beside.name)[1] == str(os.getpid())
        assert path.read_bytes() == b"old"
        file.write(b"new")

    write_whole(path, fill, wait)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_digest_is_sha_256():
    assert digest("ρ") == digest("ρ".encode()) == hashlib.sha256("ρ".encode()).hexdigest()
    assert digest(b"", 16) == "e3b0c44298fc1c14"


def test_a_fingerprint_tells_parts_kinds_and_shapes_apart():
    array = np.arange(6, dtype=np.uint8)
    parts = [("ab", "c"), ("a", "bc"), ("abc",), (array,), (array.reshape(2, 3),), (array.astype(np.int64),)]
    assert len({fingerprint(*own) for own in parts}) == len(parts)
    assert fingerprint("ab", b"c") == fingerprint(b"ab", "c")
    assert fingerprint(np.arange(4).reshape(2, 2).T) == fingerprint(np.array([[0, 2], [1, 3]]))


def test_what_json_has_no_word_for_is_null():
    value = {"a": (1.5, float("nan")), "b": [{"c": float("-inf")}], "d": "x", "e": None, "f": True}
    assert json.dumps(json_safe(value), allow_nan=False) == json.dumps(
        {"a": [1.5, None], "b": [{"c": None}], "d": "x", "e": None, "f": True}
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "ρ")
    assert os.read(reader, 10) == "ρ".encode()
    os.close(reader)
    assert pipe.is_fifo()
