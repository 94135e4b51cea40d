"""What happened along a stream, packed and unpacked."""

import contextlib
import io
import sqlite3

import numpy as np
import pytest

from delta_tta.errors import DataError
from delta_tta.experiments import Store, Trace
from delta_tta.files import fingerprint
from delta_tta.paper import benchmark as benchmark
from laboratory import result, two_results


def test_a_damaged_trace_is_a_data_error():
    one, refused = result().trace, 0
    whole = one.packed()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 0x10
        try:
            read = Trace.unpacked(bytes(broken))
        except DataError:
            refused += 1
        else:  # it was a date or another part of the archive that nobody reads
            assert (read.predicted == one.predicted).all()
            assert (read.labels == one.labels).all()
    assert refused > len(whole) / 2


@pytest.fixture
def path(tmp_path):
    return two_results(tmp_path)


def packed(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


GOOD = np.zeros(4, np.int32)


@pytest.mark.parametrize(
    "data",
    [
        "text",
        packed(predicted=GOOD),
        packed(predicted=GOOD, labels=GOOD[:3]),
        packed(predicted=GOOD.reshape(2, 2), labels=GOOD),
        packed(predicted=GOOD - 1, labels=GOOD),
        packed(predicted=GOOD + 2_000_000_000, labels=GOOD),
        packed(predicted=GOOD.astype(float), labels=GOOD),
    ],
)
def test_a_forged_trace_is_named(path, data):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("UPDATE traces SET data = ?, digest = ? WHERE key = 'second'", (data, fingerprint("second", data)))
    with Store(path) as store, pytest.raises(DataError, match=r"s\.db, cell second: A trace is damaged"):
        store.trace("second")
