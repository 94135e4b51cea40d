"""`delta_tta.bench`, which is now `delta_tta.experiments`."""

import importlib
import subprocess
import sys
import warnings

import pytest

with warnings.catch_warnings():  # it warns once a process; below, a process sees it
    warnings.simplefilter("ignore", DeprecationWarning)
    import delta_tta.bench  # noqa: F401


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("evaluate", "experiments.evaluate", "Result"),
        ("experiment", "experiments.experiment", "from_toml"),
        ("differences", "experiments.differences", "differences"),
        ("lab", "experiments.lab", "Lab"),
        ("rows", "experiments.rows", "read"),
        ("runner", "experiments.runner", "Plan"),
        ("store", "experiments.store", "Store"),
        ("trace", "experiments.trace", "Trace"),
        ("tuning", "experiments.tuning", "trials"),
        ("engine", "experiments.local_engine", "Workers"),
        ("cluster", "experiments.ray_engine", "RayEngine"),
        ("paper", "paper.numbers", "tables"),
    ],
)
def test_the_modules_of_bench_can_be_imported_and_say_where_they_are_now(old, new, name):
    module = importlib.import_module(f"delta_tta.bench.{old}")
    words = rf"^delta_tta\.bench\.{old}\.{name} is now delta_tta\.{new}\.{name}\.$"
    with pytest.warns(DeprecationWarning, match=words) as found:
        assert getattr(module, name) is getattr(importlib.import_module(f"delta_tta.{new}"), name)
    assert found[0].filename == __file__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_old_modules_are_found_by_every_kind_of_import():
    program = """
import warnings
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    import delta_tta.bench.evaluate
    from delta_tta.bench.evaluate import Result
    from delta_tta.bench import lab, evaluate
    import delta_tta.bench.store
    delta_tta.bench.store.Store
    lab.Lab
assert callable(evaluate)
print(*(f"{one.category.__name__}: {one.message}" for one in found), sep="\\n")
"""
    lines = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert lines.splitlines() == [
        "DeprecationWarning: delta_tta.bench is now delta_tta.experiments.",
        "DeprecationWarning: delta_tta.bench.evaluate.Result is now delta_tta.experiments.evaluate.Result.",
        "DeprecationWarning: delta_tta.bench.evaluate is now delta_tta.experiments.evaluate.",
        "DeprecationWarning: delta_tta.bench.store.Store is now delta_tta.experiments.store.Store.",
        "DeprecationWarning: delta_tta.bench.lab.Lab is now delta_tta.experiments.lab.Lab.",
    ]
