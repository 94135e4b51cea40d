"""Old names work, and tell their new ones."""

import importlib

import pytest

import delta_tta
from delta_tta import data, experiments, registry


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("delta_tta.data", "Fewer", data.Subset),
        ("delta_tta.data", "Joined", data.Concat),
        ("delta_tta.words", "word", registry.component),
        ("delta_tta.bench", "evaluate", experiments.evaluate),
    ],
)
def test_an_old_name_is_the_new_one_and_says_so(module, old, new):
    with pytest.warns(DeprecationWarning, match=rf"^{module}\.{old} is now delta_tta\.\w+\.{new.__name__}\.$"):
        assert getattr(importlib.import_module(module), old) is new


def test_what_never_was_is_no_attribute():
    with pytest.raises(AttributeError, match="has no attribute 'Fewest'"):
        _ = delta_tta.data.Fewest
