"""Whether a batch shows nothing, such as the frames of a covered lens: averages that follow those are lost.

Black frames are not out of all proportion, and the model's answers to them may be as certain as any. But their features
lie far from the source's statistics and hardly differ from one frame to the next: in the terms of `norms/shift.py`, the
distance is large and the variety small. Of a strong corruption only the first is true; of a still scene the second, and
the first only if it is strongly corrupted.

The source has to run for that, so it is asked only where the distance, as the adapted model's layers have met it
anyway, is above `SUSPICIOUS`. What it then finds does not depend on what was learnt.
"""

from __future__ import annotations

from torch.nn.modules.batchnorm import _BatchNorm

from .norms.layers import TRUSTED_SAMPLES
from .norms.shift import Shift

SUSPICIOUS = 0.12
"""Mean d per channel, in the adapted model, of a batch about which the source is asked."""
FAR = 0.3
"""Mean d per channel, in the source, above which a batch may be blank."""

SHOWS_NOTHING = "shows nothing: all samples are alike, and far from what the source knows"


def has_trained_statistics(layer: _BatchNorm) -> bool:
    """Whether it can tell what is far; a model that was never trained may well be tried on noise."""
    mean, var = layer.running_mean, layer.running_var
    return mean is not None and var is not None and not (bool((mean == 0).all()) and bool((var == 1).all()))


def suspicious(samples: int, distance: float, channels: int) -> bool:
    """Whether a batch is far enough from the source, and large enough, to ask about it."""
    return samples >= TRUSTED_SAMPLES and distance > SUSPICIOUS * channels


def is_blank(shift: Shift, alike: float) -> bool:
    """Whether a batch is far from the source, and its samples differ in less than a share `alike` of its variance."""
    return shift.distance > FAR * shift.channels and shift.variety < alike * shift.channels
