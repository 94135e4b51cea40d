"""The benchmarks run; what they measure is not a test's business."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delta_tta.corruptions.constants import TYPES
from laboratory import result

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("sync.py", ["--rounds", "1"], "| eta+delta |"),
        ("rivals.py", ["sar", "t3a", "--rounds", "1", "--batch-size", "32"], "| t3a | "),
        ("estimate.py", [], "| all |"),
        ("edge.py", ["--seconds", "1", "--batch-size", "8"], "| resnet20-cifar10 | anchored+sticky |"),
        (
            "serving.py",
            ["--seconds", "0.1", "--methods", "anchored", "--requests", "16", "--pause", "0"],
            "| anchored | ",
        ),
        (
            "covered_lens.py",
            ["--corruptions", "saturate", "--methods", "tema", "--images", "80", "--batch-size", "20", "--frames", "1"],
            "| 1 of 1 | 0 |",
        ),
        (
            "feedback.py",
            ["--networks", "ResNet-20, CIFAR-10", "--corruptions", "saturate", "--samples", "128"],
            "| dependent, worst | | ",
        ),
        (
            "sticky.py",
            ["--networks", "ResNet-20, CIFAR-10", "--corruptions", "saturate", "--samples", "128"],
            "| anchored+mirror, first 256, 10 classes | | ",
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
    import proving_cases
    import proving_tables
    from cells import chosen
    from development import networks

    found, missing = networks(tmp_path)
    assert [network.name for network in found] == ["ResNet-20, CIFAR-10", "CCT, CIFAR-10"]
    assert [one.name for one in chosen(found, ["resnet"])] == ["ResNet-20, CIFAR-10"]
    assert chosen(found, ["cct, cifar-10", "no such"]) == found[1:]
    found, transformer = found[:1], found[1]
    assert proving_cases.takes("tent+dot", transformer)
    assert not proving_cases.takes("tent+delta", transformer)
    assert len(missing) == 6
    assert all(why.endswith("is missing.") for why in missing)
    asked = list(proving_cases.cases(found, proving_cases.SCALES["standard"], TYPES))
    assert {case.batch_size for case in asked} == {1, 16, 64, 200}
    assert {case.stream.seed for case in asked} == {2020, 2021}
    assert {case.corruption for case in asked} == {*TYPES[:4], "none"}
    assert {case.cell("tent+anchored").spelled_out.guard for case in asked} == {"on"}
    assert {case.cell("tent").spelled_out.guard for case in asked} == {"off"}
    assert {case.cell("recommended@guard=off,filter=causal").settings for case in asked} == {
        (("filter", "causal"), ("guard", "off"))
    }

    def made_up(cell):
        clean = cell.corruptions == ("none",)
        return result({"source": 0.5, "bn": 0.4 if clean else 0.6}[cell.method])

    gains = proving_tables.gains(asked, "bn", "source", made_up)
    lines = {text.split("|")[1].strip(): text for text in proving_tables.table("bn", "Source", gains) if "|" in text}
    assert "| +10.0 ± nan | 0 % | +10.0" in lines["B = 1"]
    assert {"ResNet-20, CIFAR-10, shuffled", "ResNet-20, CIFAR-10, dependent"} < lines.keys()
    share = sum(case.corruption == "none" for case in asked) / len(asked)
    assert f"| {100 * share:.0f} % | -10.0 (ResNet-20, CIFAR-10, clean, " in lines["all"]
    proving_tables.picture({"tent+delta": gains, "bn": gains}, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000
