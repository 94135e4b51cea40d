"""A report as one HTML page that needs nothing else: it opens from disk, and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from .shown import Report

# In the order they build on one another; they become one style and one script.
STYLES = ("page.css", "tables.css", "figures.css", "print.css")
SCRIPTS = (
    "base.js",
    "axes.js",
    "tables.js",
    "charts.js",
    "crosshair.js",
    "figures.js",
    "strips.js",
    "gallery.js",
    "page.js",
)
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(report: Report) -> str:
    """Return the report as HTML. The values go in as JSON; the page's own script draws them."""
    style = "\n".join(_asset(name) for name in STYLES)
    script = "\n".join(_asset(name) for name in SCRIPTS)
    filled = {
        "policy": _policy(style, script),
        "title": html.escape(report.title),
        "lead": html.escape(report.lead),
        "style": style,
        "script": script,
        "data": _as_json(report),
    }
    # All places in one pass: a title that reads like one of them stays a title.
    return _PLACE.sub(lambda place: filled[place[1]], _asset("page.html"))


def write_page(report: Report, path: Path) -> None:
    """Write the page; the file is there whole or not at all."""
    text = page(report)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _asset(name: str) -> str:
    return resources.files("delta_tta").joinpath(f"assets/page/{name}").read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a policy under which this style and this script run, nothing else does, and nothing is fetched."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "img-src data:",  # the icon and the galleries
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _as_json(report: Report) -> str:
    """Return JSON that may stand inside a script element: pure ASCII, and no character that HTML would read."""
    text = json.dumps(_finite(report.as_dict()), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _finite(value: Any) -> Any:
    """Return the value with None for every number that JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
