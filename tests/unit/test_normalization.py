"""Input normalisation comes from the model, is reported, and a mismatch is warned about."""

import pytest
import torch
from torch import nn

from delta_tta.data import Normalisation, NormalisationWarning, normalisation_of
from delta_tta.errors import InputError
from vision import timm


def test_it_is_the_usual_formula():
    images = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    wanted = (images / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    torch.testing.assert_close(Normalisation(mean, std)(images), wanted)
    with pytest.raises(InputError, match=r"uint8, 0 to 255, but got torch\.float32"):
        Normalisation(mean, std)(images / 255)


def test_timms_models_say_their_own():
    found = normalisation_of(timm.create_model("regnetx_002"))
    assert found.mean == (0.485, 0.456, 0.406)
    assert "timm" in str(found)


def test_what_is_given_wins_and_a_mismatch_is_warned_about():
    model = timm.create_model("regnetx_002")
    with pytest.warns(NormalisationWarning, match="but the model says"):
        found = normalisation_of(model, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    assert found.std == (0.5, 0.5, 0.5)
    same = normalisation_of(model, mean=(0.4850001, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # no warning
    assert same.source == "given"


def test_a_model_that_says_nothing_needs_both():
    with pytest.raises(InputError, match="does not say how its inputs are normalised"):
        normalisation_of(nn.Identity())
    with pytest.raises(InputError, match="both `mean` and `std`"):
        normalisation_of(nn.Identity(), mean=(0, 0, 0))
    with pytest.raises(InputError, match="three values above 0 as `std`"):
        normalisation_of(nn.Identity(), mean=(0, 0, 0), std=(1, 1, 0))
