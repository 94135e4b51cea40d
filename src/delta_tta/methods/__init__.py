"""Standalone methods, and objectives that are longer than a few lines; one file each."""

from . import cmf, cotta, deyo, memo, note, rdumb, roid, rotta, sar

__all__ = ["cmf", "cotta", "deyo", "memo", "note", "rdumb", "roid", "rotta", "sar"]
