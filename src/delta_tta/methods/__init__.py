"""Methods that are not a choice of statistics, objective and reweighting: one file each, behind the same contract."""

from . import cotta, lame, memo, tta

__all__ = ["cotta", "lame", "memo", "tta"]
