"""The endurance run: short it passes, and it would notice what it is there to notice."""

import copy
import dataclasses
import mmap
import sys
from pathlib import Path

import pytest
import torch

import delta_tta
from delta_tta.reweighting import Frequencies

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHORT = 60
ROUGH = 500.0  # MB per 10,000 batches; so short a run measures it to some dozens


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    import soak

    return soak


@pytest.fixture
def watched(soak):
    """Runs tent+delta over the stream, with something done to the adapter and to the images."""
    from drift import Drift, trained

    def run(prepare=lambda adapter: None, spoil=lambda images, i: images, batches=SHORT, **settings):
        torch.manual_seed(0)
        stream = Drift(0)
        net = trained(stream)
        adapter = delta_tta.adapt(copy.deepcopy(net), "tent+delta", **{"update": "every", **settings})
        prepare(adapter)

        def batch(i):
            images, labels = stream.batch(i, 4)
            return spoil(images, i), labels

        return list(soak.complaints(soak.watch(adapter, net, batch, batches), ROUGH))

    return run


def program(soak, monkeypatch, *arguments):
    """Run the program and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["soak.py", *arguments])
    with pytest.raises(SystemExit) as done:
        soak.main()
    return done.value.code


def test_the_program_runs_twice_and_says_that_all_is_well(soak, monkeypatch, capsys):
    assert program(soak, monkeypatch, "--batches", "30", "--twice", "--max-slope", "1000") == 0
    told = capsys.readouterr().out
    assert told.endswith("All within bounds, twice the same bits.\n")
    assert "| 30 | " in told


def test_the_program_fails_with_a_sentence_for_each_reason(soak, monkeypatch, capsys):
    seeds = iter((0, 1))
    monkeypatch.setattr(soak, "_in_a_fresh_process", lambda _: soak.run("tema", 20, 4, next(seeds), {}))
    assert program(soak, monkeypatch, "--method", "tema", "--twice", "--max-slope=-1e6") == 1
    first, second, *others = capsys.readouterr().out.splitlines()[-4:]
    assert first.startswith("Memory grows by ")
    assert second.startswith("Second run: Memory grows by ")
    assert ["answers" in others[0], "state" in others[1]] == [True, True]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("tent+delta", {}),
        ("ent-w+delta", {"update": "slow", "length": 16, "background": True}),
        ("bn", {"prior": 16}),
    ],
)
def test_short_runs_stay_within_bounds_and_repeat(soak, method, settings):
    first, second = (soak.run(method, SHORT, 4, 0, settings) for _ in range(2))
    assert not list(soak.complaints(first, ROUGH))
    assert not list(soak.differences(first, second))
    assert list(soak.differences(first, dataclasses.replace(second, state="other")))
    assert first.tenths[-1].right > 0.5


def test_a_leak_is_noticed(watched):
    kept = []

    def leak(adapter):
        def keep(*_):  # mapped, as Python's own memory may come from what other tests have freed
            kept.append(mmap.mmap(-1, 1 << 20))
            kept[-1].write(bytes(range(256)) * 4096)

        adapter.register_forward_hook(keep)

    (wrong,) = watched(leak)
    assert wrong.startswith("Memory grows by ")


def test_frequencies_that_drift_are_noticed(watched, monkeypatch):
    def drifting(self, *batch, honest=Frequencies.next_state):
        return {"z": honest(self, *batch)["z"] * 1.0001}

    monkeypatch.setattr(Frequencies, "next_state", drifting)
    (wrong,) = watched()
    assert wrong.startswith("DOT's frequencies miss the sum 1 by ")


@pytest.mark.parametrize(("growth", "which"), [(1.5, ["deviations", "means"]), (0.5, ["deviations"])])
def test_averages_that_run_away_are_noticed(watched, growth, which):
    found = watched(spoil=lambda images, i: (images + 5) * growth**i, batches=40, alpha=0.5)
    assert [wrong.split()[1] for wrong in found] == which


def test_answers_that_are_not_finite_are_noticed(soak):
    fine = soak.run("source", 20, 4, 0, {})
    assert not list(soak.complaints(fine, ROUGH * 10))
    wrong = dataclasses.replace(fine, wrong_answers=3, z_error=float("nan"))
    assert [sentence.split()[0] for sentence in soak.complaints(wrong, ROUGH * 10)] == ["3", "DOT's"]
