"""Write the table of settings in docs/methods/index.md from the registry: python tools/list_settings.py."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import delta_tta
from delta_tta.registry import COMPONENTS, Component, Kind
from delta_tta.settings import COMMON, Settings, settings_of

PAGE = Path(__file__).parents[1] / "docs" / "methods" / "index.md"
BEGIN, END = "<!-- settings: made by tools/list_settings.py -->\n", "<!-- end of settings -->\n"


def table() -> str:
    """Return the settings of every component of this package with their defaults, as Markdown."""
    delta_tta.methods()
    own = [one for one in COMPONENTS.values() if one.build.__module__.startswith("delta_tta.")]
    ordered = sorted(own, key=lambda one: get_args(Kind).index(one.kind))
    rows = [("every method", _listed(COMMON, _usual())), *((f"`{one.name}`", _settings(one)) for one in ordered)]
    return "| component | settings |\n|---|---|\n" + "".join(f"| {name} | {listed} |\n" for name, listed in rows)


def written(page: str) -> str:
    """Return the page with the table of today."""
    found = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert found.search(page), f"{PAGE} has no lines {BEGIN!r} and {END!r}"
    return found.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)


def _settings(one: Component) -> str:
    options = {} if one.build.Options is None else dataclasses.asdict(one.build.Options())
    return _listed(settings_of(one.build), {**_usual(), **options, **one.build.defaults})


def _usual() -> dict[str, object]:
    usual = Settings()
    return {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}


def _listed(names: tuple[str, ...], values: dict[str, object]) -> str:
    return ", ".join(f"`{name}={values[name]!r}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
