"""A report as one HTML page that needs nothing else: it opens from disk, and asks the network for nothing."""

from __future__ import annotations

import base64
import html
import json
import re
from importlib import resources
from pathlib import Path

from ..files import digest, json_safe, write_text
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
    write_text(path, text)


def _asset(name: str) -> str:
    return resources.files("delta_tta").joinpath(f"assets/page/{name}").read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return a policy under which this style and this script run, nothing else does, and nothing is fetched."""
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{_source(style)}'",
            f"script-src '{_source(script)}'",
            "img-src data:",  # the icon and the galleries
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _source(text: str) -> str:
    return "sha256-" + base64.b64encode(bytes.fromhex(digest(text))).decode()


def _as_json(report: Report) -> str:
    """Return JSON that may stand inside a script element: pure ASCII, and no character that HTML would read."""
    text = json.dumps(json_safe(report.as_dict()), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
