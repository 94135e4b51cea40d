"""Standalone methods, one file each."""

from . import cotta, memo, note, rotta

__all__ = ["cotta", "memo", "note", "rotta"]
