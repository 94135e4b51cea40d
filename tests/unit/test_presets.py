"""The presets hold the paper's settings."""

import pytest

import delta_tta
from delta_tta import PRESETS
from delta_tta.settings import make_settings
from nets import conv_net


@pytest.mark.parametrize(
    ("preset", "expected"),
    [
        ("cifar100-c", ("adam", 1e-3, 0.95, 0.9, "batch")),
        ("cifar10-c", ("adam", 1e-3, 0.95, 0.9, "batch")),
        ("imagenet-c", ("sgd", 2.5e-4, 0.95, 0.95, "selected")),
        ("imagenet-r", ("sgd", 2.5e-4, 0.95, 0.95, "selected")),
        ("ytbb-sub", ("sgd", 2.5e-4, 0.999, 0.9, "selected")),
        (None, ("sgd", 2.5e-4, 0.95, 0.95, "selected")),
    ],
)
def test_presets_hold_the_papers_settings(preset, expected):
    s = make_settings(preset, {})
    assert (s.optimizer, s.lr, s.alpha, s.lam, s.reduction) == expected


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_a_method_of_a_paper_behaves_as_its_paper_says(preset):
    for method in ("bn", "tema", "tent", "tent+delta", "tent+delta+sticky", "lame", "cotta"):
        pixels = {"mean": (0, 0, 0), "std": (1, 1, 1)} if method == "cotta" else {}
        s = delta_tta.adapt(conv_net(), method, preset, **pixels).settings
        assert (s.init, s.update, s.guard, s.episodic, s.background) == ("first", "every", "off", False, False)
