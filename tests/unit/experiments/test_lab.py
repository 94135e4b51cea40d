"""The laboratory: what a result depends on is in its key, and cells come out as the same thing done by hand."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch

from delta_tta import data, models
from delta_tta.errors import DataError, InputError, SettingError
from delta_tta.experiments import Cell, Place, evaluate
from delta_tta.experiments.lab import Lab
from delta_tta.paper import benchmark as benchmark
from delta_tta.streams import continual, mixed, stream
from laboratory import LABELS, NETWORK, cell, pixels, place, same_result, same_trace


@pytest.fixture
def root(tmp_path):
    return tmp_path


@pytest.fixture
def lab(root):
    return Lab(root / "cache")


CHANGES = {
    "method": {"method": "tent+tbr"},
    "a setting": {"settings": (("alpha", 0.9),)},
    "another setting": {"settings": (("lam", 0.95),)},
    "seed": {"seed": 2021},
    "scenario": {"scenario": "DS+CB (rho=0.1)"},
    "rho": {"scenario": "DS+CB (rho=0.2)"},
    "batch size": {"batch_size": 11},
    "corruption": {"corruptions": ("fog",)},
    "no corruption": {"corruptions": ("none",)},
    "severity": {"severity": 4},
    "several corruptions": {"corruptions": ("contrast", "fog"), "order": "continual"},
    "another order of them": {"corruptions": ("fog", "contrast"), "order": "continual"},
    "mixed": {"corruptions": ("contrast", "fog"), "order": "mixed"},
    "statistics": {"statistics": True},
}


def test_the_key_changes_with_everything_that_determines_the_result(root, lab):
    where = place(root / "a")
    one_pixel = pixels()
    one_pixel[17, 3, 3, 1] ^= 1
    swapped = LABELS.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    places = {
        "weights": place(root / "b", "other_weights"),
        "a pixel": place(root / "c", pixels=one_pixel),
        "two labels": place(root / "d", labels=swapped),
        "the order": place(root / "e", pixels=pixels()[::-1], labels=LABELS[::-1]),
        "fewer images": place(root / "f", images=30),
        "the preset": place(root / "g", preset="imagenet-c"),
    }
    keys = {"nothing": lab.key(cell(where))}
    keys |= {what: lab.key(cell(where, **changes)) for what, changes in CHANGES.items()}
    keys |= {what: lab.key(cell(other)) for what, other in places.items()}
    assert len(set(keys.values())) == len(keys)
    assert all(len(key) == 32 and set(key) <= set("0123456789abcdef") for key in keys.values())


def test_the_key_does_not_change_with_where_files_lie_or_how_things_are_spelled(root, lab):
    where = place(root / "here")
    key = lab.key(cell(where))
    shutil.copytree(root / "here", root / "elsewhere" / "deeper")
    (root / "elsewhere" / "deeper" / "network.py").rename(root / "elsewhere" / "net.py")
    moved = Place("cifar", str(root / "elsewhere" / "deeper" / "images.npz"), f"{root / 'elsewhere' / 'net.py'}:make")
    assert lab.key(cell(moved)) == key
    assert Lab(root / "another cache").key(cell(where)) == key
    assert lab.key(cell(where, "tent+dot+tbr")) == key
    spelled = (("lr", 1e-3), ("alpha", 0.95), ("optimizer", "adam"), ("lam", 0.9))  # as the preset has them
    assert lab.key(cell(where, settings=spelled)) == key
    assert lab.key(cell(dataclasses.replace(where, preset="cifar100-c"))) == key  # the same values
    assert lab.key(cell(dataclasses.replace(where, images=60))) == key  # that is all of them
    assert lab.key(cell(dataclasses.replace(where, images=1000))) == key
    assert lab.key(cell(dataclasses.replace(where, images=32))) == lab.key(cell(dataclasses.replace(where, images=30)))


def test_a_setting_of_the_method_itself_may_be_spelled_out(root, lab):
    where = place(root)
    own = (("reduction", "selected"),)  # ETA's, whatever the preset says
    assert lab.key(cell(where, "eta", settings=own)) == lab.key(cell(where, "eta"))
    assert lab.key(cell(where, "tent", settings=own)) != lab.key(cell(where, "tent"))


def test_a_result_carries_its_identity(root, lab):
    one = cell(place(root), "eata")
    said = json.loads(json.dumps(lab.run(one).about["identity"]))
    assert said == json.loads(json.dumps(lab.identity(one)))
    assert said["source images"]
    assert lab.identity(cell(place(root), "eta"))["source images"] is None


def loaded(model):
    """The model in the memory layout in which the laboratory runs it."""
    named = models.load(model)
    named.model.to(memory_format=torch.channels_last)
    return named


@pytest.mark.parametrize("order", ["continual", "mixed"])
def test_several_corruptions_are_the_stream_over_domains(root, lab, order):
    where, names = place(root), ("contrast", "fog", "none")
    one = cell(where, "tent+delta", corruptions=names, order=order, settings=(("lr", 0.02),))
    clean = data.cifar(where.path)
    sets = [data.Corrupted(clean, "contrast", 5), data.Corrupted(clean, "fog", 5), clean]
    within = stream(clean.labels, "IS+CB")
    over = (continual if order == "continual" else mixed)(within, names)
    by_hand = evaluate(
        loaded(where.model), "tent+delta", data.Concat(sets), over, batch_size=10, preset="cifar10-c", lr=0.02
    )
    ours = lab.run(one)
    assert same_result(ours, by_hand)
    assert same_trace(ours.trace, by_hand.trace)
    assert ours.samples == 180
    assert list(ours.domains) == list(names)


def test_one_cell_is_evaluate_and_leaves_the_model_for_the_next(root, lab):
    where = place(root, images=40)
    one = cell(where, "tent+delta", scenario="DS+CI (rho=0.5, pi=0.1)", settings=(("lr", 0.05),))
    images = data.Corrupted(data.Subset(data.cifar(where.path), 40), "contrast", 5)
    order = stream(images.labels, "DS+CI", rho=0.5, pi=0.1)
    by_hand = evaluate(loaded(where.model), "tent+delta", images, order, batch_size=10, preset="cifar10-c", lr=0.05)
    for _ in range(2):
        ours = lab.run(one)
        assert same_result(ours, by_hand)
        assert same_trace(ours.trace, by_hand.trace)
        lab.run(cell(where, "cotta", settings=(("views", 2),)))  # it changes all weights


def test_eata_gets_images_of_the_source(root, lab):
    where = place(root)
    ours = lab.run(cell(where, "eata"))
    clean = data.cifar(where.path)
    noisy = data.Corrupted(clean, "contrast", 5)
    order = stream(clean.labels, "IS+CB")
    by_hand = evaluate(loaded(where.model), "eata", noisy, order, batch_size=10, preset="cifar10-c", source=clean)
    assert same_trace(ours.trace, by_hand.trace)


def test_statistics_are_a_row_a_batch_and_change_no_prediction(root, lab):
    where = place(root)
    for method in ("source", "bn", "tent", "tent+delta", "tema"):
        plain, watched = (lab.run(cell(where, method, statistics=kept)) for kept in (False, True))
        assert same_result(plain, watched)
        assert (plain.trace.predicted == watched.trace.predicted).all()
        assert plain.trace.batches == {}
        moving = {"tent+delta", "tema"} & {method}
        names = {"batch mean", "batch std"} | ({"kept mean", "kept std"} if moving else set())
        assert set(watched.trace.batches) == names
        assert {values.shape for values in watched.trace.batches.values()} == {(6, 8)}
        assert (watched.trace.batches["batch std"] > 0).all()


def test_a_moving_average_moves_less_than_the_batches(root, lab):
    seen = lab.run(cell(place(root), "tema", statistics=True)).trace.batches
    first, later = seen["kept mean"][:1], seen["kept mean"][1:]
    assert np.isnan(first).all()  # before the first batch nothing was kept
    assert np.allclose(later[0], 0.95 * seen["batch mean"][0] + 0.05 * seen["batch mean"][0])
    assert np.allclose(later[1], 0.95 * later[0] + 0.05 * seen["batch mean"][1], atol=1e-6)
    assert np.diff(later, axis=0).std() < np.diff(seen["batch mean"], axis=0).std() / 5


def test_corrupted_images_are_made_once_and_shared(root):
    where, cache = place(root / "place"), root / "cache"
    first = Lab(cache).images(where, "fog", 3)
    (file,) = cache.iterdir()
    before = file.stat().st_mtime_ns
    second = Lab(cache).images(where, "fog", 3)
    assert list(cache.iterdir()) == [file]
    assert file.stat().st_mtime_ns == before
    expected = data.Corrupted(data.cifar(where.path), "fog", 3)
    for images in (first, second):
        assert isinstance(images.images, np.memmap)
        assert (images.take(np.arange(60)) == expected.take(np.arange(60))).all()
        assert images.describe() == expected.describe()
    Lab(cache).images(where, "fog", 4)
    Lab(cache).images(where, "none", 3)  # as it is: nothing to make
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("left", [0, 50, 5000])
def test_a_damaged_file_of_the_cache_is_named_and_can_be_deleted(root, left):
    where, cache = place(root / "place"), root / "cache"
    right = Lab(cache).run(cell(where))
    (file,) = cache.iterdir()
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(DataError, match=rf"{file.name} is damaged .* delete it, and it will be made again"):
        Lab(cache).run(cell(where))
    file.unlink()
    assert same_trace(Lab(cache).run(cell(where)).trace, right.trace)


def test_what_cannot_be_is_said_before_anything_runs(root, lab):
    where = place(root)
    with pytest.raises(InputError, match=r"from 5 \(one a class\) to 60 of the images"):
        lab.key(cell(dataclasses.replace(where, images=4)))
    with pytest.raises(DataError, match="Expected CIFAR at"):
        lab.key(cell(dataclasses.replace(where, path=str(root / "nowhere"))))
    official = Place("cifar-c", str(root), where.model)
    with pytest.raises(SettingError, match="'cifar-c' holds corrupted images alone"):
        lab.key(cell(official, corruptions=("none",)))
    with pytest.raises(DataError, match=r"Expected .*contrast\.npy, but there is none"):
        lab.key(cell(official))
    (root / "films.csv").write_text("path,label,video,time\n")
    for kind in ("imagenet-r", "video"):
        with pytest.raises(SettingError, match="has no corruptions to choose: expected the corruption 'none'"):
            lab.key(cell(Place(kind, str(root / "films.csv"), where.model)))


def test_the_published_layout_gives_what_corruption_on_the_fly_gives(root, lab):
    few = data.Subset(data.demo(), 30)
    levels = [data.Corrupted(few, "contrast", level).take(np.arange(30)) for level in range(1, 6)]
    np.save(root / "contrast.npy", np.concatenate(levels))
    np.save(root / "labels.npy", np.tile(few.labels, 5))
    ours = lab.run(cell(Place(images=30), "tent", severity=2))
    theirs = lab.run(cell(Place("cifar-c", str(root)), "tent", severity=2))
    assert same_trace(ours.trace, theirs.trace)
    assert (ours.digest, ours.class_mean_accuracy) == (theirs.digest, theirs.class_mean_accuracy)


def test_another_network_with_the_same_weights_has_another_key(tmp_path):
    where = place(tmp_path)
    (tmp_path / "other.py").write_text(NETWORK.replace("nn.ReLU()", "nn.Tanh()"))
    other = dataclasses.replace(where, model=f"{tmp_path / 'other.py'}:make")
    lab = Lab(tmp_path / "cache")
    assert lab.run(cell(where)).trace.predicted.tolist() != lab.run(cell(other)).trace.predicted.tolist()
    assert lab.key(cell(where)) != lab.key(cell(other))


@pytest.mark.parametrize(("method", "settings"), [("tent", (("update", "slow"), ("length", 20))), ("tta", ())])
def test_statistics_are_a_row_a_batch(method, settings, tmp_path):
    one = cell(place(tmp_path), method, settings=settings, statistics=True)
    assert len(Lab(tmp_path / "cache").run(one).trace.batches["batch mean"]) == 6


def test_another_seed_mixes_otherwise(tmp_path):
    lab = Lab(tmp_path / "cache")
    where = place(tmp_path)
    one, two = (lab.stream(cell(where, seed=seed, corruptions=("fog", "contrast"), order="mixed")) for seed in (1, 2))
    assert one.which.tolist() != two.which.tolist()


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
