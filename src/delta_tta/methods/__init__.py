"""Standalone methods, one file each."""

from . import cotta, memo

__all__ = ["cotta", "memo"]
