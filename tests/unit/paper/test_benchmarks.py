"""Every exhibit on every benchmark gives numbers, or a sentence that says why not.

The results are made up; tests/e2e/test_paper_benchmarks.py runs the paper's benchmarks for real.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from delta_tta import models
from delta_tta.corruptions.constants import TYPES
from delta_tta.data.folders import imagenet_wnids
from delta_tta.errors import SettingError
from delta_tta.experiments import Store
from delta_tta.experiments.lab import Lab
from delta_tta.paper import BENCHMARKS, EXHIBITS, ResultIndex, exhibit
from delta_tta.paper import benchmark as benchmark
from delta_tta.paper.spec import GallerySpec
from delta_tta.report.shown import Figure, Gallery, Strips, Table
from delta_tta.streams import StreamSpec
from laboratory import result

RENDITIONS = ("art", "cartoon", "toy")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Images for each ground, a handful of them."""
    root = tmp_path_factory.mktemp("grounds")
    draw = np.random.default_rng(0)
    noise = draw.integers(0, 256, (100, 32, 32, 3), dtype=np.uint8)
    (root / "cifar").mkdir()
    np.savez(root / "cifar/test.npz", images=noise, labels=np.arange(100))
    (root / "cifar-c").mkdir()
    np.save(root / "cifar-c/labels.npy", np.tile(np.arange(100), 5))
    for name in TYPES:
        np.save(root / f"cifar-c/{name}.npy", np.tile(noise, (5, 1, 1, 1)))
        picture(root / f"imagenet-c/{name}/5/n01694178/a.JPEG", noise[0])
    for wnid, rendition in itertools.product(("n01694178", *imagenet_wnids()[100:299]), RENDITIONS):
        if wnid == "n01694178" or rendition == "art":
            picture(root / f"imagenet-r/{wnid}/{rendition}_1.jpg", noise[1])
    return root


def picture(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "JPEG")


def on(name, places, clean=True):
    there = {
        "cifar100": places / "cifar",
        "cifar100-c": places / "cifar-c",
        "imagenet-c": places / "imagenet-c",
        "imagenet-r": places / "imagenet-r",
        "ytbb-sub": places / "manifest.csv",
    }
    weights = places / "weights.pt" if name in ("cifar100-c", "ytbb-sub") else None
    beside = places / "cifar" if clean and name in ("cifar100-c", "imagenet-c") else None
    return benchmark(name, there.get(name), weights, clean=beside)


def filled(store, where, spec):
    """Record a made-up result for every cell of an exhibit."""
    statistics = {
        f"{kind} {what}": np.ones((3, 2), np.float32) for kind in ("batch", "kept") for what in ("mean", "std")
    }
    for number, cell in enumerate(spec.cells(where)):
        made = result(domains=dict.fromkeys(cell.corruptions, 0.5) if cell.order == "continual" else {})
        made.trace.batches.update(statistics)
        store.record(f"{number}", cell, made)


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize("which", EXHIBITS)
def test_an_exhibit_has_numbers_everywhere_or_says_why_not(which, name, places, tmp_path):
    where, spec = on(name, places), EXHIBITS[which]
    where = dataclasses.replace(where, seeds=where.seeds[:1], corruptions=where.corruptions[:2])
    why = spec.why_not(where)
    if why:
        assert why.endswith(".")
        assert why[0].isupper()
        return
    with Store(tmp_path / "store") as store:
        filled(store, where, spec)
        made = exhibit(spec, ResultIndex(store, where, lab=Lab(tmp_path / "cache")))
    if isinstance(made, Table):
        assert made.rows
        assert made.columns
        assert all(number is not None and number.runs == number.of for row in made.rows for number in row.numbers)
    elif isinstance(made, Figure):
        assert made.panels
        assert all(series.x and series.y for panel in made.panels for series in panel.series)
        assert all(panel.series for panel in made.panels)
    elif isinstance(made, Strips):
        assert made.strips
    else:
        assert isinstance(made, Gallery)
        assert len(made.pictures) == (3 if which == "figure-6" else 15)


@pytest.mark.parametrize("which", EXHIBITS)
def test_each_exhibit_can_be_had_on_the_papers_own_data(which, places):
    homes = [name for name in BENCHMARKS if not EXHIBITS[which].why_not(on(name, places))]
    number = int("".join(filter(str.isdigit, which)) or 0)
    if which.startswith("table") and 18 <= number <= 34:
        assert ("imagenet-c" in homes) == (number >= 26)
        assert ("cifar100-c" in homes) == (number < 26)
    elif which in ("table-8", "figure-6", "figure-8a", "figure-8b"):
        assert {"imagenet-r", "ytbb-sub"} & {*homes}
    else:
        assert {"cifar100-c", "imagenet-c", "demo"} <= set(homes)


def test_a_table_of_the_other_data_points_to_its_counterpart(places):
    assert "table-28" in EXHIBITS["table-19"].why_not(on("imagenet-c", places))
    assert "table-25" in EXHIBITS["table-34"].why_not(on("cifar100-c", places))
    with_twin = [spec for spec in EXHIBITS.values() if "on these it is" in spec.why_not(on("demo", places))]
    assert [spec.id for spec in with_twin] == [f"table-{n}" for n in range(26, 35)]


def test_clean_images_are_asked_for_where_there_are_none(places):
    without = on("cifar100-c", places, clean=False)
    assert "--clean" in EXHIBITS["table-7"].why_not(without)
    curves = [
        [label for label, _, _ in EXHIBITS["figure-3"].of(where)[0].series]
        for where in (without, on("cifar100-c", places))
    ]
    assert curves[1] == ["Source, clean images", *curves[0]]
    with pytest.raises(SettingError, match="takes no clean images"):
        benchmark("demo", clean=places)


def test_clean_images_beside_corrupted_ones_are_read(places, tmp_path):
    where = on("cifar100-c", places)
    (cell,) = where.cells(
        {"method": "source", "scenario": StreamSpec("IS+CB"), "corruptions": ("none",), "seeds": (1,)}
    )
    assert len(Lab(tmp_path).described(cell.place, "none", 5)) == 100


def test_the_small_batches_of_table_11_start_as_figure_9_finds_better(places):
    starts = {
        (cell.batch_size, cell.spelled_out.init)
        for cell in EXHIBITS["table-11"].cells(on("cifar100-c", places))
        if cell.method == "tent+delta"
    }
    assert starts == {(128, "first"), (16, "first"), (8, "inherit"), (1, "inherit")}
    assert {c.spelled_out.update for c in EXHIBITS["table-11"].cells(on("demo", places))} == {"slow"}


def test_videos_come_in_several_orders(places):
    seeds = {(c.stream.scenario, c.stream.seed) for c in EXHIBITS["table-8"].cells(on("ytbb-sub", places))}
    assert seeds == {("videos", seed) for seed in (2020, 2021, 2022, 2023)}


def test_a_few_samples_of_each_stream_are_enough_to_try_it_out():
    where = benchmark("demo", samples=100)
    assert {cell.samples for spec in EXHIBITS.values() for cell in spec.cells(where)} == {100}
    assert where.description.endswith("the first 100 samples of a stream")


@pytest.mark.parametrize("name", ["demo", "cifar100"])
def test_weights_of_ones_own_are_honoured(name, places, tmp_path):
    torch.save({"state_dict": models.load("wrn16-2", "random").model.state_dict()}, tmp_path / "wide.pt")
    where = benchmark(name, None if name == "demo" else places / "cifar", tmp_path / "wide.pt")
    assert (where.place.model, where.place.weights) == ("wrn16-2", str(tmp_path / "wide.pt"))
    assert "wrn16-2 (wide.pt)" in where.description
    assert where.architectures == (("wrn16-2 (wide.pt)", "wrn16-2", str(tmp_path / "wide.pt")),)


def test_galleries_need_nothing_to_be_run():
    galleries = [spec.id for spec in EXHIBITS.values() if isinstance(spec, GallerySpec)]
    assert galleries == ["figure-6", "figure-7"]
    assert not EXHIBITS["figure-7"].cells(benchmark("demo"))
