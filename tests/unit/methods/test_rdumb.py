"""RDumb: ETA that goes back to the source every 1,000 updates."""

import math

import pytest
import torch

import delta_tta
from delta_tta.methods.rdumb import RDumb
from delta_tta.settings import Settings
from nets import batches, conv_net

USUAL = {"lr": 0.05, "similarity": 1.0, "guard": "off"}


def test_defaults_are_those_of_the_published_program():
    settings = delta_tta.adapt(conv_net(), "rdumb").settings
    assert (settings.reset_every, settings.reduction, settings.similarity) == (1000, "selected", 0.05)
    margin = RDumb(Settings()).threshold * math.log(1000)
    assert margin == pytest.approx(math.log(1000) / 2 - 1)
    assert RDumb(Settings(threshold=0.3)).threshold == 0.3


def test_it_is_eta_with_another_margin_that_begins_anew():
    margin = 0.5 - 1 / math.log(1000)
    rdumb = delta_tta.adapt(conv_net(), "rdumb", reset_every=2, **USUAL)
    eta = delta_tta.adapt(conv_net(), "eta", threshold=margin, **USUAL)
    used = []
    for number, x in enumerate(batches(6)):
        if number % 2 == 0:
            eta.reset()
        assert torch.equal(rdumb(x), eta(x))
        used.append(rdumb.signals.used)
    assert max(used) > 0
