"""The store of results: nothing is lost, nothing half kept, and nobody else's file is touched."""

import contextlib
import dataclasses
import itertools
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

import laboratory
from delta_tta.errors import DataError
from delta_tta.experiments import Cell, Place, Store
from delta_tta.experiments.store import SCHEMA, SILENT
from delta_tta.paper import benchmark as benchmark
from delta_tta.streams import StreamSpec
from laboratory import ask, result, same_trace, until

CELL = Cell(Place(images=50), "tent+delta", StreamSpec("DS+CB", rho=0.1), settings=(("alpha", 0.9),))


SPEAKER = """
import pickle, sys
from delta_tta.experiments import Store
import laboratory
for line in sys.stdin:
    if line.startswith("open "):
        store = Store(line[5:-1])
        print("ready", flush=True)
    else:
        print(eval(line), flush=True)
"""


class Speaker:
    """A store opened by another process, which does what it is told."""

    def __init__(self):
        self.process = laboratory.python(SPEAKER)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def says(self, expression):
        self.tell(expression)
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture(scope="module")
def speaker():
    speaker = Speaker()
    yield speaker
    speaker.kill()


@pytest.fixture
def other(path, speaker):
    """Another process with the same store."""
    assert speaker.says(f"open {path}") == "ready"
    return speaker


def filled(path, count=3):
    with Store(path) as store:
        for number in range(count):
            store.record(f"key {number}", CELL, result(number / 10, number))


def files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_is_recorded_comes_back_equal(path):
    kept = result(0.75, domains={"fog": 0.5, "snow": 1.0})
    with Store(path) as store:
        assert len(store) == 0
        store.record("a", CELL, kept)
    with Store(path, create=False) as store:
        ((key, cell, found),) = store.results()
        assert (key, cell) == ("a", CELL)
        assert dataclasses.replace(found, trace=kept.trace) == kept
        assert same_trace(store.trace("a"), kept.trace)
        assert len(store) == 1
        with pytest.raises(DataError, match="no trace of cell b"):
            store.trace("b")


def test_results_come_in_the_order_they_were_finished_or_those_that_are_asked_for(path):
    with Store(path) as store:
        for key in ("c", "a", "b"):
            store.record(key, CELL, result())
        assert [key for key, _, _ in store.results()] == ["c", "a", "b"]
        assert [key for key, _, _ in store.results(["b", "c", "x"])] == ["c", "b"]
        assert store.done(["a", "x", "b"]) == {"a", "b"}


def test_the_first_result_stays_if_there_are_two(path):
    first, second = result(0.25, 1), result(0.5, 2)
    with Store(path) as store:
        store.record("a", CELL, first)
        store.record("a", CELL, second)
        ((_, _, found),) = store.results()
        assert found.class_mean_accuracy == 0.25
        assert same_trace(store.trace("a"), first.trace)


def test_nothing_is_half_recorded_when_the_second_half_fails(path):
    whole = result()
    fault = "CREATE TRIGGER fault BEFORE INSERT ON traces BEGIN SELECT raise(FAIL, 'no room'); END"
    with Store(path) as store:
        assert store.claim("a")
        ask(path, fault)
        with pytest.raises(OSError, match="no room"):
            store.record("a", CELL, whole)
        assert len(store) == 0
        assert ask(path, "SELECT count(*) FROM claims") == [(1,)]  # and the cell is still ours
        ask(path, "DROP TRIGGER fault")
        store.record("a", CELL, whole)  # the store goes on
        assert store.done(["a"])
        assert same_trace(store.trace("a"), whole.trace)


def test_killed_while_it_writes_it_keeps_what_was_committed(path):
    writer = laboratory.python(
        """
import sys
from delta_tta.experiments import Store
import laboratory
from unit.experiments.test_store import CELL
with Store(sys.argv[1]) as store:
    for number in range(10**9):
        store.record(f"key {number}", CELL, laboratory.result(0.5, number))
        print(number, flush=True)
""",
        path,
    )
    for _ in range(20):
        said = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    said = (writer.communicate()[0].split() or [said])[-1]
    with Store(path) as store:
        assert len(store) in (int(said) + 1, int(said) + 2)  # the last may be committed and not yet said
        for key, _, _ in store.results():
            assert same_trace(store.trace(key), result(0.5, int(key.split()[1])).trace)


def test_a_missing_store_is_made_only_on_demand(path):
    with pytest.raises(DataError, match=r"results\.sqlite, but there is none; `delta-tta run` makes one"):
        Store(path, create=False)
    assert not path.exists()
    with Store(path.parent / "new" / "folder" / "results.sqlite") as store:
        assert len(store) == 0


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    filled(path)
    with Store(path, create=False) as store:
        assert len(store) == 3


def test_a_database_of_something_else_is_left_as_it_is(path):
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE cells (key TEXT)")
        base.commit()
    before = files(path.parent)
    with pytest.raises(DataError, match="no store of results; it was not changed"):
        Store(path)
    assert files(path.parent) == before


@pytest.mark.parametrize(
    "content", [b"methods,accuracy\ntent,0.5\n" * 100, b"\x00" * 5000, b"SQLite format 3\x00 and no more"]
)
def test_a_file_that_is_no_database_is_left_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged or no store of results"):
        Store(path)
    assert files(path.parent) == {path.name: content}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_store_is_left_as_it_is(path, share):
    filled(path, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    before = files(path.parent)
    with pytest.raises(DataError, match=r"results\.sqlite is damaged"):
        Store(path)
    assert files(path.parent) == before


def test_a_store_with_flipped_bits_is_refused_or_whole_and_never_changed(path):
    filled(path, 20)
    whole = path.read_bytes()
    with Store(path) as store:
        right = [(key, cell, found.as_dict()) for key, cell, found in store.results()]
    pages = range(0, len(whole), 4096)
    refused = 0
    for start in pages:  # in the head of each page are its kind and the places of its rows
        broken = bytearray(whole)
        for place in range(start + (100 if start == 0 else 0), start + (108 if start == 0 else 8)):
            broken[place] ^= 0xFF
        path.write_bytes(broken)
        try:
            with Store(path) as store:
                assert [(key, cell, found.as_dict()) for key, cell, found in store.results()] == right
        except DataError:
            refused += 1
        assert files(path.parent) == {path.name: bytes(broken)}
    assert refused > len(pages) / 4  # the others are the continuations of long traces: `Trace` knows those


def test_a_store_of_another_schema_is_left_as_it_is(path):
    filled(path)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = path.read_bytes()
    with pytest.raises(DataError, match=f"has schema {SCHEMA + 1}, but this version of delta-tta reads {SCHEMA}"):
        Store(path)
    assert path.read_bytes() == before


def test_only_one_of_two_processes_gets_a_cell(path, other):
    with Store(path) as store:
        assert store.claim("a")
        assert store.claim("a")  # it is ours already
        assert other.says("store.claim('a')") == "False"
        assert other.says("store.claim('b')") == "True"
        assert not store.claim("b")
        store.release("a")
        assert other.says("store.claim('a')") == "True"
        store.release()  # only what is ours
        assert not store.claim("a")
        assert other.says("store.release()") == "None"
        assert store.claim("a")
        assert store.claim("b")


def test_what_is_done_is_not_claimed_and_its_claim_is_gone(path, other):
    with Store(path) as store:
        assert store.claim("a")
        store.record("a", CELL, result())
        assert not store.claim("a")
        assert other.says("store.claim('a')") == "False"
        assert ask(path, "SELECT count(*) FROM claims") == [(0,)]


def test_the_claim_of_a_killed_process_can_be_taken(path):
    other = Speaker()
    with Store(path) as store:
        assert other.says(f"open {path}") == "ready"
        assert other.says("store.claim('a')") == "True"
        assert not store.claim("a")
        other.kill()
        assert store.claim("a")


def test_the_number_of_a_dead_process_may_go_to_another(path):
    with Store(path) as store:
        assert store.claim("a")
        ask(path, "UPDATE claims SET pid = ?, born = born + 1000000", os.getppid())  # it lives, but did not start then
        assert store.claim("a")


def test_a_claim_from_another_machine_holds_as_long_as_its_heart_beats(path):
    with Store(path) as store:
        assert store.claim("a")
        ask(path, "UPDATE claims SET host = 'elsewhere'")
        assert not store.claim("a")
        ask(path, "UPDATE claims SET beat = beat - ?", SILENT / 2)
        assert not store.claim("a")
        store.beat()  # not its heart
        ask(path, "UPDATE claims SET beat = beat - ?", SILENT / 2)
        assert store.claim("a")


def test_a_heartbeat_is_that_of_all_claims_of_the_process(path, other):
    with Store(path) as store:
        assert store.claim("a")
        assert store.claim("b")
        other.says("store.claim('c')")
        ask(path, "UPDATE claims SET beat = 1")
        store.beat()
        rows = dict(ask(path, "SELECT key, beat FROM claims"))
        assert rows["a"] == rows["b"] > rows["c"] == 1


def test_two_processes_that_write_at_once_lose_nothing(path, other):
    with Store(path) as store:
        other.tell(
            "[store.claim(f'{n}') and store.record(f'{n}', pickle.loads(bytes.fromhex("
            f"'{pickle.dumps(CELL).hex()}')), laboratory.result(0.5, n)) for n in range(60)]"
        )
        mine = 0
        for number in reversed(range(60)):
            if store.claim(f"{number}"):
                store.record(f"{number}", CELL, result(0.25, number))
                mine += 1
        theirs = other.process.stdout.readline().count("None")
        until(lambda: len(store) == 60)
        assert mine + theirs == 60  # each was claimed once
        found = {int(key): value.class_mean_accuracy for key, _, value in store.results()}
        assert sorted(found) == list(range(60))
        assert sum(value == 0.25 for value in found.values()) == mine
        assert all(same_trace(store.trace(str(n)), result(0.5, n).trace) for n in range(60))


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("making a small disk needs root")
    yield mount
    subprocess.run(["umount", mount], check=True)


def record_for_ever(store):
    for number in itertools.count():
        store.record(f"key {number}", CELL, result(0.5, number))


def test_on_a_full_disk_what_was_recorded_stays_and_with_room_it_goes_on(small_disk):
    path, ballast = small_disk / "results.sqlite", small_disk / "ballast"
    ballast.write_bytes(bytes(64 * 1024))
    with Store(path) as store:
        with pytest.raises(OSError, match="full"):
            record_for_ever(store)
        kept = len(store)
        assert kept > 5
        ballast.unlink()
        store.record(f"key {kept}", CELL, result(0.5, kept))
    with Store(path) as store:
        assert len(store) == kept + 1
        assert all(same_trace(store.trace(f"key {n}"), result(0.5, n).trace) for n in range(kept + 1))


def test_the_claim_of_a_zombie_can_be_taken(tmp_path):
    other = Speaker()
    with Store(tmp_path / "s") as store:
        other.says(f"open {tmp_path / 's'}")
        other.says("store.claim('a')")
        other.process.kill()
        time.sleep(0.3)  # dead, and nobody has waited for it
        try:
            assert store.claim("a")
        finally:
            other.process.communicate()


def test_a_row_with_a_flipped_bit_is_a_data_error_not_another_number(tmp_path):
    with Store(tmp_path / "s") as store:
        store.record("key 0", CELL, result(0.8125))
    whole = (tmp_path / "s").read_bytes()
    at = whole.index(b'"class_mean_accuracy": 0.8125')
    for offset, flip in ((24, 0x01), (2, 0x80), (0, 0x01)):
        broken = bytearray(whole)
        broken[at + offset] ^= flip
        (tmp_path / "s").write_bytes(broken)
        with Store(tmp_path / "s") as store, pytest.raises(DataError, match="s is damaged"):
            list(store.results())


def test_a_foreign_database_in_wal_mode_is_left_as_it_is(tmp_path):
    code = (
        "import sqlite3, sys, os; b = sqlite3.connect(sys.argv[1]); b.execute('PRAGMA journal_mode = wal');"
        "b.execute('CREATE TABLE t (x)'); b.commit(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "f.db"], check=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("shm")}
    with pytest.raises(DataError):
        Store(tmp_path / "f.db")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("shm")} == before
