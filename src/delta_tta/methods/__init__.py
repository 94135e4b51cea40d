"""Standalone methods, one file each."""

from . import cmf, cotta, memo, roid

__all__ = ["cmf", "cotta", "memo", "roid"]
