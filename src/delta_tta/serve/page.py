"""The live page of the service: one HTML text, and the policy under which it runs."""

from __future__ import annotations

import base64
import functools
import re
from importlib import resources

from ..files import digest

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


@functools.cache
def page() -> str:
    """Return the page. It shows what `GET status` answers, and fetches nothing else."""
    return resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")


@functools.cache
def policy() -> str:
    """Return the Content-Security-Policy to send with the page: its style and its script run, and nothing else."""
    sources = {kind: _source(text) for kind, text in _INLINE.findall(page())}
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src {sources['style']}",
            f"script-src {sources['script']}",
            "img-src data:",  # the icon
            "connect-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",  # no text becomes markup, not even by a mistake in the script
        )
    )


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(bytes.fromhex(digest(text))).decode()}'"
