"""The benchmarks run; what they measure is not a test's business."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from delta_tta.bench.experiment import Place
from delta_tta.corruptions.constants import TYPES
from laboratory import result

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("sync.py", ["--rounds", "1"], "| eta+delta |"),
        ("estimate.py", [], "| all |"),
        (
            "guard.py",
            ["--corruptions", "saturate", "--images", "40", "--cases", "2", "--workers", "0"],
            "| learning rate × 100 |",
        ),
        (
            "covered_lens.py",
            ["--corruptions", "saturate", "--methods", "tema", "--images", "80", "--batch-size", "20", "--frames", "1"],
            "| 1 of 1 | 0 |",
        ),
        (
            "proving_ground.py",
            ["bn", "--quick", "--samples", "10", "--networks", "ResNet-20, CIFAR-10", "--workers", "0"],
            "| ResNet-20, CIFAR-10 | 18 |",
        ),
    ],
)
def test_a_benchmark_prints_its_table(name, arguments, words, tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / name, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # beside another test two threads wait for each other
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a bar is missed, as it may be on a busy machine
    assert "Traceback" not in done.stderr, done.stderr
    assert words in done.stdout


def test_the_proving_ground_compares_cell_by_cell(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(FOLDER)
    import proving_ground
    from development import networks

    found, missing = networks(tmp_path)
    assert [network.name for network in found] == ["ResNet-20, CIFAR-10"]
    assert len(missing) == 6
    assert all(why.endswith("is missing.") for why in missing)
    asked = list(proving_ground.cases(found, proving_ground.SCALES["standard"], TYPES))
    assert {case.batch_size for case in asked} == {1, 16, 64, 200}
    assert {case.stream.seed for case in asked} == {2020, 2021}
    assert {case.corruption for case in asked} == {*TYPES[:4], "none"}
    assert {case.cell("tent@ours").spelled_out.guard for case in asked} == {"on"}
    assert {case.cell("tent").spelled_out.guard for case in asked} == {"off"}

    def made_up(cell):
        clean = cell.corruptions == ("none",)
        return result({"source": 0.5, "bn": 0.4 if clean else 0.6}[cell.method])

    gains = proving_ground.gains(asked, "bn", "source", made_up)
    lines = {text.split("|")[1].strip(): text for text in proving_ground.table("bn", "Source", gains) if "|" in text}
    assert "| +10.0 ± nan | 0 % | +10.0" in lines["B = 1"]
    share = sum(case.corruption == "none" for case in asked) / len(asked)
    assert f"| {100 * share:.0f} % | -10.0 (ResNet-20, CIFAR-10, clean, " in lines["all"]
    proving_ground.draw(proving_ground.picture({"bn": gains}), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000


def test_the_map_of_degradation(monkeypatch, tmp_path):
    """Its picture and its line; to run its cells takes an hour."""
    monkeypatch.syspath_prepend(FOLDER)
    import degradation
    from cells import OURS

    one = degradation.Map.of(Place(), TYPES, "tent+delta", OURS, "ours")
    gains = np.linspace(-2, 10, len(one.cells) * len(one.cells[0])).reshape(len(one.cells), -1)
    line = degradation.summary(one.title, gains, one.cells)
    assert line.startswith("| ours | 552 | 16.7 % | ")
    assert "| -2.0 (gaussian noise 1, IS+CB, seed 2020, B = 1) | +4.0 |" in line
    degradation.draw([(one, gains), (one, -gains)], tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 20_000


def test_the_map_judges_again_what_was_below_source(monkeypatch, tmp_path, capsys):
    """On sixteen streams of 60 images, most of which this method makes worse."""
    monkeypatch.syspath_prepend(FOLDER)
    import degradation

    asked = ["--images", "60", "--batch-sizes", "16", "--corruptions", "saturate", "--methods", "bn", "--cells"]
    places = ["--store", str(tmp_path / "map.db"), "--out", str(tmp_path / "map.png"), "--workers", "0"]
    monkeypatch.setattr("sys.argv", ["degradation.py", *asked, *places, "--again", "2021", "2022"])
    degradation.main()
    judged = capsys.readouterr().out.split("| cells below Source |")[1].splitlines()
    line = next(line for line in judged if line.startswith("| bn, our defaults |")).split("|")
    cells = [text.split() for text in judged if text.startswith("  ")]
    assert len(cells) == int(line[2]) >= 4, "batches' own statistics on dependent streams"
    assert float(line[3]) == pytest.approx(np.mean([float(first) for first, *_ in cells]), abs=0.06)
    assert float(line[4].split("±")[0]) == pytest.approx(np.mean([float(again) for _, again, *_ in cells]), abs=0.06)
    assert int(line[6]) == sum(float(again) < -0.5 for _, again, *_ in cells)
    assert sum(first != again for first, again, *_ in cells) > len(cells) / 2, "by other streams"


def test_the_guards_table_is_a_mean_over_seeds(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    import guard

    monkeypatch.setattr(guard, "CASES", (guard.Case("as set", ("tema",), guard.SCENARIOS[3:4]),))
    place = ["--images", "40", "--corruptions", "fog", "--store", str(tmp_path / "guard.db"), "--workers", "0"]

    def accuracies(*seeds):
        monkeypatch.setattr("sys.argv", ["guard.py", *place, "--cells", "--seeds", *seeds])
        guard.main()
        line = capsys.readouterr().out.splitlines()[-1]
        return np.array([float(line.partition(f"{name} ")[2].split(",")[0]) for name in (": source", "off", ", on")])

    one, other = accuracies("1"), accuracies("2")
    assert (abs(one - other) > 1).all(), "an imbalanced stream draws other images with another seed"
    assert accuracies("1", "2") == pytest.approx((one + other) / 2, abs=0.11)


def test_past_the_paper_pairs_what_met_the_same_stream(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from past_the_paper import SCENARIOS, Part, variants

    part = Part("a title", variants("tent"), Place(images=40), ("fog", "snow"), (1, 2))
    gains = {("fog", 1): 1.0, ("fog", 2): 2.0, ("snow", 1): 3.0, ("snow", 2): 4.0}  # mean 2.5, error √(5/3)/2

    def accuracy(cell):
        level = {"fog": 30.0, "snow": 70.0}[cell.corruptions[0]] + 5 * cell.stream.seed
        return level + (gains[cell.corruptions[0], cell.stream.seed] if cell.settings else 0)

    title, *lines = "\n".join(part.table(accuracy)).strip().rsplit("\n", 4)
    columns = len(SCENARIOS) + 1
    assert "a title" in title
    assert title.count("DS+CB") == 3
    assert "| dependent |" in title
    assert lines == [
        f"| tent+delta, as the paper {'| 57.5 ' * columns}|",
        f"| tent+delta-b, even pace {'| 57.5 (+0.0 ± 0.0) ' * columns}|",
        f"| tent+delta, our defaults {'| 60.0 (+2.5 ± 0.6) ' * columns}|",
        f"| tent+delta-b, our defaults {'| 60.0 (+2.5 ± 0.6) ' * columns}|",
    ]
    assert len(set(part.all_cells())) == 4 * len(SCENARIOS) * 4
