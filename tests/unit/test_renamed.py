"""Old names work, and tell their new ones."""

import importlib
import warnings

import pytest
import torch

import delta_tta
from delta_tta import data, experiments, registry
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


def test_the_limits_of_the_guard_are_found_where_they_were():
    module = importlib.import_module("delta_tta.guard.limits")
    with pytest.warns(
        DeprecationWarning, match=r"^delta_tta\.guard\.limits\.Guard is now delta_tta\.guard_limits\.Guard"
    ):
        assert module.Guard is delta_tta.Guard
    assert delta_tta.guard.limits is module
    assert delta_tta.guard.Guard is delta_tta.Guard


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
