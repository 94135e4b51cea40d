"""Small timm and torchvision models without batch norm: every objective and part adapts them, guarded."""

import copy

import pytest
import torch

import delta_tta
from all_methods import SCHEDULES, assert_same_state, saved_and_loaded
from delta_tta.norms.others import other_norms
from delta_tta.recipe import used_settings
from nets import same, snapshot
from vision import timm, torchvision

SIZE = 32


def made(name, **options):
    return timm.create_model(name, num_classes=7, **options)


def small_vit(**options):
    return made("vit_tiny_patch16_224", img_size=SIZE, patch_size=8, embed_dim=48, num_heads=3, depth=2, **options)


MODELS = {
    "vit": small_vit,
    "vit with RMSNorm": lambda: small_vit(norm_layer="rmsnorm"),
    "convnext": lambda: made("convnext_atto", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48)),
    "convnext with RMSNorm": lambda: made("convnext_atto_rms", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48)),
    "swin": lambda: made(
        "swin_tiny_patch4_window7_224",
        img_size=SIZE, patch_size=2, window_size=4, embed_dim=24, depths=(1, 1), num_heads=(2, 4),
    ),
    "resnet with GroupNorm": lambda: made("resnet26d", norm_layer="groupnorm1", layers=(1, 1, 1, 1)),
    "torchvision convnext": lambda: torchvision.models.ConvNeXt(
        [torchvision.models.convnext.CNBlockConfig(*c, 1) for c in ((16, 32), (32, None))], num_classes=7
    ),
    "torchvision swin": lambda: torchvision.models.SwinTransformer([2, 2], 24, [1, 1], [2, 4], [4, 4], num_classes=7),
    "the embedded transformer": lambda: delta_tta.models.load("cct-cifar10").model,
    "the repository's resnet with GroupNorm": lambda: delta_tta.models.load("resnet26-gn", "random", classes=7).model,
}  # fmt: skip
METHODS = [
    *("tent", "pl+dot", "ent-w+la", "eta+dot+sticky", "eata+kl-div", "tent+div-w+lame", "tent+sample-drop"),
    *("tent+dot+mirror+sticky", "eata"),
]


def images(seed):
    return torch.randn(6, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 1.5 + 0.5


def adapted(model, method, **schedule):
    settings = {
        "lr": 1e-2, "optimizer": "adam", "threshold": 1.0, "similarity": 1.0, "views": 2, "guard": "on",
        "mean": (0.5,) * 3, "std": (0.5,) * 3, **schedule,
    }  # fmt: skip
    if method.startswith("pl"):
        settings["threshold"] = 0.01
    source = [images(99)] if method.startswith("eata") else None
    return delta_tta.adapt(model, method, source=source, **used_settings(method, settings))


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    torch.manual_seed(0)
    return MODELS[request.param]().eval()


@pytest.mark.parametrize("method", METHODS)
def test_every_objective_and_part_trains_the_norm_layers_and_nothing_else(model, method):
    model = copy.deepcopy(model)
    source, before = snapshot(model), model(images(9)).detach()
    trained = {f"{name}.{part}" for name, m in other_norms(model).items() for part, _ in m.named_parameters()}
    adapter = adapted(model, method)
    assert set(adapter.state_dict()["parameters"]) == trained
    for step in range(3):
        assert adapter(images(step)).isfinite().all()
        if step == 0:  # afterwards sample-drop may leave nothing of an untrained model's answers
            assert adapter.signals.used > 0
    now = snapshot(model)
    assert {name for name, value in source.items() if not torch.equal(now[name], value)} <= trained
    assert not torch.equal(adapter._updater.logits(images(9)), before)
    adapter.reset()
    assert same(snapshot(model), source)
    adapter(images(0))
    assert same(snapshot(adapter.unload()), source)
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("schedule", ["slow", "window", "background"])
def test_schedules_and_resumed_states(model, schedule):
    one, other = (adapted(copy.deepcopy(model), "tent+dot", **SCHEDULES[schedule]) for _ in range(2))
    for step in range(2):
        one(images(step))
    other.load_state_dict(saved_and_loaded(one.state_dict()))
    for step in range(2, 4):
        assert torch.equal(one(images(step)), other(images(step)))
    assert_same_state(one.state_dict(), other.state_dict())


def test_the_guard_refuses_garbage_and_undoes_a_collapse(model):
    adapter = adapted(copy.deepcopy(model), "tent")
    adapter(images(0))
    before = adapter.state_dict()["parameters"]
    broken = images(1)
    broken[0] = float("nan")
    adapter(broken)
    assert adapter.signals.skipped is not None
    assert all(torch.equal(value, before[name]) for name, value in adapter.state_dict()["parameters"].items())
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in adapter._updater.adapted.parameters.values():
            p.add_(5 * torch.randn(p.shape, generator=drawn))
    for step in range(2, 12):
        adapter(images(step))
        if adapter.signals.rollbacks:
            break
    assert adapter.signals.rollbacks == 1
    assert all(p.abs().max() < 2.5 for p in adapter.state_dict()["parameters"].values())


def test_the_default_needs_no_batch_norm(model):
    model = copy.deepcopy(model)
    adapter = delta_tta.adapt(model)
    assert str(adapter.recipe) == "source+mirror+sticky"
    for step in range(3):
        assert adapter(images(step)).isfinite().all()


def test_the_baked_model_is_a_plain_model_that_answers_alike(model):
    model = copy.deepcopy(model)
    adapter = adapted(model, "eta+dot")
    for step in range(3):
        adapter(images(step))
    expected = adapter.predict(images(9))
    assert torch.equal(adapter.unload(keep=True)(images(9)), expected)
