"""Methods that are not a choice of statistics, objective and reweighting: one file each, behind the same contract."""

from . import cotta, memo

__all__ = ["cotta", "memo"]
