"""Standalone methods, and objectives that are longer than a few lines; one file each."""

from . import cotta, deyo, memo, rdumb, sar

__all__ = ["cotta", "deyo", "memo", "rdumb", "sar"]
