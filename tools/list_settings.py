"""Write what lists the settings of all components: python tools/list_settings.py.

That is the table in docs/methods/index.md, and src/delta_tta/settings_typing.py, which tells editors and type checkers
their types.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import get_args

import delta_tta
from delta_tta.registry import COMPONENTS, Component, Kind, declared_by
from delta_tta.settings import COMMON, Settings, settings_of
from delta_tta.typed import AMERICAN

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods" / "index.md"
TYPING = ROOT / "src" / "delta_tta" / "settings_typing.py"
BEGIN, END = "<!-- settings: made by tools/list_settings.py -->\n", "<!-- end of settings -->\n"
MODULE = '''"""The settings of all components with their types, for editors and type checkers.

Made by tools/list_settings.py from the `Options` of the components.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from .guard_limits import Guard


class SettingsDict(TypedDict, total=False):
    """Settings as keywords of `adapt`; `methods()` says which component has which."""

{keywords}

class SettingsAttributes:
    """The settings of components as attributes of `Settings`."""

{attributes}'''


def table() -> str:
    """Return the settings of every component of this package with their defaults, as Markdown."""
    rows = [("every method", _listed(COMMON, {})), *((f"`{one.name}`", _settings(one)) for one in components())]
    return "| component | settings |\n|---|---|\n" + "".join(f"| {name} | {listed} |\n" for name, listed in rows)


def written(page: str) -> str:
    """Return the page with the table of today."""
    found = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert found.search(page), f"{PAGE} has no lines {BEGIN!r} and {END!r}"
    return found.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)


def module() -> str:
    """Return the types of the settings of today, as a module."""
    common = {name: _type(Settings, name) for name in COMMON}
    own = {name: _type(kind, name) for one in components() for name, kind in declared_by(one.build).items()}
    other = {american: own[name] for american, name in AMERICAN.items()}
    keywords, attributes = (
        "".join(f"    {name}: {kind}\n" for name, kind in found.items()) for found in (common | own | other, own)
    )
    return MODULE.format(keywords=keywords, attributes=attributes)


def components() -> list[Component]:
    """Return the components of this package, kind by kind."""
    delta_tta.methods()
    own = [one for one in COMPONENTS.values() if one.build.__module__.startswith("delta_tta.")]
    return sorted(own, key=lambda one: get_args(Kind).index(one.kind))


def _type(kind: type, name: str) -> str:
    found = next(str(field.type) for field in dataclasses.fields(kind) if field.name == name)
    return found.replace("'", '"')  # as the formatter writes it


def _settings(one: Component) -> str:
    return _listed(settings_of(one.build), one.build.defaults)


def _listed(names: tuple[str, ...], other: dict[str, object]) -> str:
    usual = Settings()
    return ", ".join(f"`{name}={other.get(name, getattr(usual, name))!r}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    TYPING.write_text(module(), encoding="utf-8")
