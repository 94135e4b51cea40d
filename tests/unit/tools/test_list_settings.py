"""The lists of settings, in the documentation and for editors, are those of the registry."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "list_settings.py"


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("list_settings", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_page_lists_the_settings_of_today(tool):
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.written(page), "run python tools/list_settings.py"
    assert "| `dot` | `lam=0.95`, `dot='hard'` |" in page


def test_an_editor_knows_the_settings_of_today(tool):
    found = tool.module()
    assert found == tool.TYPING.read_text(encoding="utf-8"), "run python tools/list_settings.py"
    assert "    sar_rho: float\n" in found
    assert '    dot: Literal["hard", "soft"]\n' in found
