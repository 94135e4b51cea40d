"""What a service runs where nobody says which method."""

import pytest
from torch import nn

from delta_tta.serve.start import Model, default_method, make_adapter
from nets import conv_net

pytest.importorskip("uvicorn")


@pytest.mark.parametrize(
    ("model", "method"),
    [(conv_net(), "anchored+sticky"), (nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "source+sticky")],
)
def test_the_default_leaves_out_mirror_images(model, method):
    assert default_method(model) == method


def test_the_default_is_guarded_and_estimates_its_accuracy_also_without_batch_norm():
    settings = make_adapter(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), Model("net")).settings
    assert (settings.guard, settings.estimate) == ("on", True)


def test_a_method_that_was_asked_for_keeps_its_own_settings():
    settings = make_adapter(conv_net(), Model("net", method="tent", settings={"lr": 0.1})).settings
    assert (settings.guard, settings.estimate, settings.lr) == ("off", False, 0.1)
