"""Old names work, and tell their new ones."""

import importlib
import subprocess
import sys
import warnings

import pytest
import torch

import delta_tta
from delta_tta import data, experiments, registry
from delta_tta.postprocess.base import Postprocess
from nets import batches, conv_net

with warnings.catch_warnings():  # it warns once a process; below, a process sees it
    warnings.simplefilter("ignore", DeprecationWarning)
    import delta_tta.bench


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("delta_tta.data", "Fewer", data.Subset),
        ("delta_tta.data", "Joined", data.Concat),
        ("delta_tta.words", "Word", registry.Component),
        ("delta_tta.bench", "evaluate", experiments.evaluate),
        ("delta_tta.bench", "Store", experiments.Store),
    ],
)
def test_an_old_name_is_the_new_one_and_says_so(module, old, new):
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{old} is now delta_tta\.\w+\.{new.__name__}\.$") as found:
        assert getattr(importlib.import_module(module), old) is new
    assert found[0].filename == __file__


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


def test_the_limits_of_the_guard_are_found_where_they_were():
    module = importlib.import_module("delta_tta.guard.limits")
    with pytest.warns(
        DeprecationWarning, match=r"^delta_tta\.guard\.limits\.Guard is now delta_tta\.guard_limits\.Guard"
    ):
        assert module.Guard is delta_tta.Guard
    assert delta_tta.guard.limits is module
    assert delta_tta.guard.Guard is delta_tta.Guard


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


def test_the_old_decorator_takes_the_old_kinds(monkeypatch):
    monkeypatch.setattr(registry, "COMPONENTS", {})
    with pytest.warns(DeprecationWarning, match=r"^delta_tta\.words\.word is now delta_tta\.registry\.component\.$"):
        word = importlib.import_module("delta_tta.words").word

    class Plain(Postprocess):
        pass

    word("plain", "answer", "changes nothing", part=True)(Plain)
    word("plainer", room="whole", line="changes nothing", alone=True)(Plain)
    assert {name: one.kind for name, one in registry.COMPONENTS.items()} == {
        "plain": "postprocess",
        "plainer": "standalone",
    }
    with pytest.raises(ValueError, match="Unknown kind 'answers'"):
        word("plainest", "answers", "changes nothing")


def test_what_never_was_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'Fewest'"):
        _ = delta_tta.data.Fewest


def test_methods_of_other_packages_may_call_the_steps_of_an_update_by_their_old_names():
    updater = delta_tta.adapt(conv_net(), "tent")._updater
    x = batches(1)[0]
    with pytest.warns(DeprecationWarning, match=r"^Updater\._logits is now logits\.$") as found:
        assert torch.equal(updater._logits(x), updater.logits(x))
    assert found[0].filename == __file__
    with updater.in_phase("observing"), pytest.warns(DeprecationWarning, match="is now learnable"):
        logits = updater._learnable(x)
    with pytest.warns(DeprecationWarning, match="is now gradients"):
        gradients = updater._gradients(logits.sum())
    assert [g.shape for g in gradients] == [p.shape for p in updater.adapted.parameters.values()]
    with pytest.raises(AttributeError, match="'Updater' object has no attribute '_nothing'"):
        _ = updater._nothing
