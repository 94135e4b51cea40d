"""`delta_tta.words`, which is now `delta_tta.registry`."""

import importlib

import pytest

from delta_tta import registry
from delta_tta.postprocess.base import Postprocess


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
