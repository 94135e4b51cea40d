"""Standalone methods, and objectives that are longer than a few lines; one file each."""

from . import cotta, deyo, memo, note, rdumb, rotta, sar

__all__ = ["cotta", "deyo", "memo", "note", "rdumb", "rotta", "sar"]
