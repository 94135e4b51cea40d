"""What CoTTA, MEMO and TTA share: all weights, and views of images."""

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta import SettingError
from delta_tta.augmentations.views import turn_hue
from nets import batches, conv_net

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 4}


def values(model):
    return {name.replace("source.", ""): p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("method", ["cotta", "memo"])
def test_autocast_does_not_answer_with_the_weights_of_another_set(method):
    xs = batches(6, size=4)
    settings = {"restore": 0.0, "lr": 0.05 if method == "memo" else 0.01, "optimizer": "sgd", "gate": 0.0, **SCALE}
    exact, cast = (fitting(conv_net(), method, **settings) for _ in range(2))
    still = fitting(conv_net(), method, **{**settings, "lr": 1e-12})
    with torch.autocast("cpu", torch.bfloat16):
        answers = [cast(x).float() for x in xs]
    moved = error = 0.0
    for x, answer in zip(xs, answers, strict=True):
        wanted = exact(x)
        error += float((answer - wanted).abs().mean())
        moved += float((still(x) - wanted).abs().mean())
    if method == "memo":  # CoTTA's teacher hardly moves in six steps; its student is compared below
        assert error < 0.5 * moved
    ours, theirs = values(cast.model), values(exact.model)
    assert all(torch.allclose(ours[k], theirs[k], atol=0.02) for k in ours)
    assert torch.is_autocast_cache_enabled()


@pytest.mark.parametrize("method", ["cotta", "memo"])
def test_half_precision_models_are_refused_where_all_weights_train(method):
    with pytest.raises(delta_tta.ModelError, match="Give the model in float32"):
        fitting(conv_net().half(), method, **SCALE)


def test_grey_images_in_half_precision_have_finite_views():
    adapter = delta_tta.adapt(conv_net().to(torch.bfloat16), "tta", **SCALE)
    grey = torch.full((2, 3, 8, 8), 0.25, dtype=torch.bfloat16)
    assert adapter(grey).isfinite().all()
    assert turn_hue(torch.full((1, 3, 2, 2), 0.5), torch.full((1, 1, 1, 1), 0.1)).tolist()[0][0][0] == [0.5, 0.5]


@pytest.mark.parametrize("method", ["cotta", "memo", "tta"])
def test_methods_that_augment_must_know_the_normalisation(method):
    with pytest.raises(SettingError, match="undo their normalisation"):
        delta_tta.adapt(conv_net(), method)
    net = conv_net()
    net.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
    assert fitting(net, method, views=2)(batches(1)[0]).isfinite().all()


def test_whole_methods_have_settings_of_their_own():
    cifar = delta_tta.adapt(conv_net(), "memo", "cifar100-c", **SCALE).settings
    assert (cifar.lr, cifar.views) == (5e-3, 4)
    usual = delta_tta.adapt(conv_net(), "cotta", "imagenet-c", **SCALE).settings
    assert (usual.lr, usual.optimizer, usual.symmetric, usual.restore) == (1e-2, "sgd", True, 0.001)
    assert delta_tta.adapt(conv_net(), "cotta", "cifar10-c", lr=0.5, **SCALE).settings.lr == 0.5
