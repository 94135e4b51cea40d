"""Corners of the laboratory where a wrong number, a lost result or a raw error would hide."""

import contextlib
import dataclasses
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from PIL import Image
from test_store import CELL, Speaker

from delta_tta import data
from delta_tta.errors import DataError, DeltaError, SettingError
from delta_tta.experiments import Cell, Place, Store, Trace, from_mapping, from_toml
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.runner import Plan
from delta_tta.paper import EXHIBITS, Shelf, exhibit
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.spec import merged
from delta_tta.report.overview import overview
from delta_tta.streams import StreamSpec
from laboratory import NETWORK, cell, place, result

IS_CB = StreamSpec("IS+CB")


def numbers(table):
    return {row.label: row.numbers for row in table.rows}


def put(store, where, when, value, **changes):
    for one in where.cells(when):
        store.record(f"{len(store)}", one, result(value(one) / 100, **changes))


def fifty_or_seventy(one):
    return 70 if one.corruptions[0] == "motion_blur" else 50


def test_cotta_star_by_corruption_is_the_continual_run(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-18"]
    with Store(tmp_path / "s") as store:
        when = {"method": "cotta", "order": "continual", "scenario": IS_CB, "seeds": (2020,)}
        domains = {"gaussian_noise": 0.2, "motion_blur": 0.4}
        put(store, where, when, lambda c: 99, domains=domains, stream="continual over …")
        row = numbers(exhibit(spec, Shelf(store, where)))["CoTTA*"]
        assert [n and n.mean for n in row] == pytest.approx([20, 40, 30])


def test_another_network_with_the_same_weights_has_another_key(tmp_path):
    where = place(tmp_path)
    (tmp_path / "other.py").write_text(NETWORK.replace("nn.ReLU()", "nn.Tanh()"))
    other = dataclasses.replace(where, model=f"{tmp_path / 'other.py'}:make")
    lab = Lab(tmp_path / "cache")
    assert lab.run(cell(where)).trace.predicted.tolist() != lab.run(cell(other)).trace.predicted.tolist()
    assert lab.key(cell(where)) != lab.key(cell(other))


def test_another_picture_of_the_same_size_has_another_fingerprint(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / label / "0.bmp")
    before = data.folder(tmp_path, size=None).fingerprint()
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(tmp_path / "a" / "0.bmp")
    assert data.folder(tmp_path, size=None).fingerprint() != before


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


@pytest.mark.parametrize("change", ["images", "severity of clean images", "seed of the natural order"])
def test_what_was_found_by_key_is_shown(change, tmp_path):
    lab = Lab(tmp_path / "cache")
    where = benchmark("demo")
    when = {"method": "source", "scenario": IS_CB, "seeds": (2020,), "corruptions": ("none",)}
    (wanted,) = where.cells(when)
    if change == "images":
        kept = dataclasses.replace(wanted, place=dataclasses.replace(wanted.place, images=2000))
    elif change == "severity of clean images":
        kept = dataclasses.replace(wanted, severity=1)
    else:
        wanted = dataclasses.replace(wanted, stream=StreamSpec("natural", seed=2021))
        kept = dataclasses.replace(wanted, stream=StreamSpec("natural"))
    assert lab.key(kept) == lab.key(wanted)
    with Store(tmp_path / "s") as store:
        store.record(lab.key(kept), kept, result())
        assert store.done([lab.key(wanted)])  # it will not be run
        assert Shelf(store, where, Plan.of([wanted], lab).keys).result(wanted) is not None


def test_points_over_a_source_that_is_half_done_are_not_final(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-1"]
    with Store(tmp_path / "s") as store:
        put(store, where, {**spec.rows[0].when, "method": "tent"}, fifty_or_seventy)
        put(store, where, {**spec.rows[0].when, "method": "source", "corruptions": ("gaussian_noise",)}, lambda c: 40)
        number = numbers(exhibit(spec, Shelf(store, where)))["IS+CB"][0]
        assert number is None or number.runs < number.of or number.mean == pytest.approx(10)


def test_a_gain_is_over_the_same_runs(tmp_path):
    where = benchmark("demo")
    spec = EXHIBITS["table-4"]
    when = spec.columns[0].when
    with Store(tmp_path / "s") as store:
        put(store, where, merged(when, {"method": "tent+delta"}), fifty_or_seventy)
        put(store, where, merged(when, {"method": "tent", "corruptions": ("gaussian_noise",)}), lambda c: 45)
        gain = numbers(exhibit(spec, Shelf(store, where)))["TENT+DELTA"][0].gain
        assert gain is None or gain == pytest.approx(5)


def test_an_overview_does_not_mix_two_folders(tmp_path):
    one, other = (Place("folder", str(tmp_path / name), "resnet20", "w.pt") for name in "ab")
    runs = [(Cell(one, "tent", IS_CB), result(0.2)), (Cell(other, "tent", IS_CB), result(0.8))]
    means = [n.mean for table in overview(runs) for row in table.rows for n in row.numbers if n]
    assert sorted(means) == pytest.approx([20, 80])


def test_a_damaged_trace_is_a_data_error():
    whole = result().trace.packed()
    for place_ in range(len(whole)):
        broken = bytearray(whole)
        broken[place_] ^= 0x10
        with contextlib.suppress(DataError):
            Trace.unpacked(bytes(broken))


def test_a_row_with_a_flipped_bit_is_a_data_error_not_another_number(tmp_path):
    with Store(tmp_path / "s") as store:
        store.record("key 0", CELL, result(0.8125))
    whole = (tmp_path / "s").read_bytes()
    at = whole.index(b'"class_mean_accuracy": 0.8125')
    for offset, flip in ((24, 0x01), (2, 0x80), (0, 0x01)):
        broken = bytearray(whole)
        broken[at + offset] ^= flip
        (tmp_path / "s").write_bytes(broken)
        with Store(tmp_path / "s") as store, contextlib.suppress(DeltaError):
            assert [r.class_mean_accuracy for _, _, r in store.results()] == [0.8125]


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


@pytest.mark.parametrize(("method", "settings"), [("tent", (("update", "slow"), ("length", 20))), ("tta", ())])
def test_statistics_are_a_row_a_batch(method, settings, tmp_path):
    one = cell(place(tmp_path), method, settings=settings, statistics=True)
    assert len(Lab(tmp_path / "cache").run(one).trace.batches["batch mean"]) == 6


def test_another_seed_mixes_otherwise(tmp_path):
    lab = Lab(tmp_path / "cache")
    where = place(tmp_path)
    one, two = (lab.stream(cell(where, seed=seed, corruptions=("fog", "contrast"), order="mixed")) for seed in (1, 2))
    assert one.which.tolist() != two.which.tolist()


@pytest.mark.parametrize(
    "values",
    [
        {"settings": "alpha=0.9"},
        {"settings": {"alpha": {"x": 1}}},
        {"statistics": "yes"},
        {"severities": 2.5},
        {"severities": []},
        {"seeds": []},
        {"images": True},
        {"data": "cifar", "path": 5},
        {"model": 5},
        {"preset": ["cifar10-c"]},
        {"methods": None},
    ],
    ids=str,
)
def test_wrong_values_are_errors_made_for_users(values):
    with pytest.raises(DeltaError):
        from_mapping({"methods": "tent", **values}).cells()


def test_a_cell_without_corruptions_is_refused():
    with pytest.raises(SettingError):
        Cell(Place(), "tent", IS_CB, (), "continual")


def test_a_file_that_is_no_text_is_an_error_made_for_users(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DeltaError):
        from_toml(tmp_path / "a.toml")


def test_a_network_of_ones_own_beside_the_experiment_is_found(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "net.py").write_text(NETWORK)
    (tmp_path / "x" / "a.toml").write_text('methods = "tent"\nmodel = "net.py:make"')
    monkeypatch.chdir(tmp_path)
    assert from_toml(tmp_path / "x" / "a.toml").place.model == f"{tmp_path / 'x' / 'net.py'}:make"


def test_a_path_that_is_missing_is_not_looked_for_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    (tmp_path / "images").mkdir()
    (tmp_path / "x" / "a.toml").write_text('methods = "tent"\ndata = "folder"\npath = "images"')
    monkeypatch.chdir(tmp_path)
    assert from_toml(tmp_path / "x" / "a.toml").place.path == str(tmp_path / "x" / "images")


def test_validation_does_not_depend_on_what_was_asked_before():
    Cell(Place(), "tent", IS_CB, settings=(("background", True),))
    with pytest.raises(SettingError):
        Cell(Place(), "tent", IS_CB, settings=(("background", 1),))


def test_two_threads_make_a_file_of_the_cache_at_once(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), dtype=np.uint8)
    base = data.ArraySet("noise", noise, np.arange(3000) % 4, "abcd")

    class Slow(data.ArraySet):
        def take(self, indices):
            time.sleep(0.05 * (threading.current_thread().name == "b"))
            return super().take(indices)

    errors = []

    def make():
        try:
            own = Slow("noise", base.images, base.labels, "abcd")
            assert (data.on_disk(own, tmp_path).take(np.arange(3000)) == base.images).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make, name=name) for name in "ab"]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors


def test_a_natural_stream_of_four_seeds_is_one_run(tmp_path):
    where = dataclasses.replace(benchmark("demo"), seeds=(2020, 2021), corruptions=("none",))
    when = {"method": "tent", "scenario": StreamSpec("natural")}
    with Store(tmp_path / "s") as store:
        put(store, where, when, lambda c: 50)
        assert Shelf(store, where).values(when) == ({(2020, "none"): 50.0}, 1)


def test_the_beginning_of_a_stream_is_its_beginning(tmp_path):
    lab = Lab(tmp_path / "cache")
    whole = cell(place(tmp_path), "source")
    first = dataclasses.replace(whole, samples=25)
    assert lab.stream(first).indices.tolist() == lab.stream(whole).indices.tolist()[:25]
    assert lab.key(first) != lab.key(whole)
    assert lab.run(first).trace.predicted.tolist() == lab.run(whole).trace.predicted.tolist()[:25]
    assert Cell.from_dict(first.as_dict()) == first
    with pytest.raises(SettingError):
        dataclasses.replace(whole, samples=0)
