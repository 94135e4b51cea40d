"""What `delta_tta.registry` was called before 0.2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .registry import component
from .renamed import renamed

KINDS = {"answer": "postprocess", "whole": "standalone"}
"""Kinds that had other names before 0.2."""


def _word(name: str, room: Any, line: str, **settings: Any) -> Callable[[Any], Any]:
    """Register a component; its kind may have its old name."""
    return component(name, KINDS.get(room, room), line, **settings)


__getattr__ = renamed(
    __name__,
    {
        "word": "delta_tta.registry:component",
        "WORDS": "delta_tta.registry:COMPONENTS",
        "Word": "delta_tta.registry:Component",
        "State": "delta_tta.registry:State",
    },
    {"word": _word},
)
