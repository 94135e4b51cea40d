"""The table of settings in the documentation is that of the registry."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "list_settings.py"


def test_the_page_lists_the_settings_of_today():
    spec = importlib.util.spec_from_file_location("list_settings", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    page = tool.PAGE.read_text(encoding="utf-8")
    assert page == tool.written(page), "run python tools/list_settings.py"
    assert "| `dot` | `lam=0.95`, `dot='hard'` |" in page
