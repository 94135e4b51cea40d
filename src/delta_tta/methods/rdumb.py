"""RDumb (Press et al. 2023): ETA that goes back to the source every 1,000 updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ..objectives import Eta
from ..registry import component


@component(
    "rdumb", "objective", "eta, reset every 1,000 updates (RDumb, Press et al. 2023)", alone=True, has=("div-w",)
)
class RDumb(Eta):
    """ETA with `reset_every=1000` and the margin of the authors' program, ln 1000 / 2 − 1 for 1,000 classes."""

    defaults: ClassVar[Mapping[str, Any]] = {**Eta.defaults, "reset_every": 1000}
    default_threshold = 0.5 - 1 / math.log(1000)
