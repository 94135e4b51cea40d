"""torchvision and timm models, whole: adapted, reset, baked and exported."""

import copy
import io

import numpy as np
import onnxruntime
import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta import Guard
from nets import same, snapshot
from vision import timm, torchvision

MODELS = {
    "torchvision resnet18": lambda: torchvision.models.resnet18(num_classes=7),
    "torchvision mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=7),
    "torchvision densenet121": lambda: torchvision.models.densenet121(num_classes=7),
    "timm resnet10t": lambda: timm.create_model("resnet10t", num_classes=7),
    "timm regnetx_002": lambda: timm.create_model("regnetx_002", num_classes=7),
    "timm tf_efficientnet_lite0": lambda: timm.create_model("tf_efficientnet_lite0", num_classes=7),
    "timm mobilenetv3_small_050": lambda: timm.create_model("mobilenetv3_small_050", num_classes=7),
}
SIZE = 32
UNTRAINED = Guard(alike=0)  # noise, which is all these models know, shows nothing


def settled(build):
    """A model whose running statistics fit its features, as a trained one's do."""
    torch.manual_seed(0)
    model = build().train()
    with torch.no_grad():
        for _ in range(20):
            model(torch.randn(16, 3, SIZE, SIZE))
    return model.eval()


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return settled(MODELS[request.param])


def drifted(seed=1):
    return torch.randn(16, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) * 1.5 + 0.5


def test_the_three_lines_on_any_model(model):
    model = copy.deepcopy(model)
    source, x = snapshot(model), drifted()
    with torch.no_grad():
        expected = model(x)
    adapter = delta_tta.adapt(model, "tent+delta", guard=UNTRAINED)
    assert torch.allclose(adapter.predict(x), expected, rtol=1e-4, atol=1e-4)  # activations and drop are kept
    for step in range(3):
        assert adapter(drifted(step)).isfinite().all()
    assert (adapter.predict(x) - expected).abs().max() > 1e-3
    adapter.reset()
    assert torch.allclose(adapter.predict(x), expected, rtol=1e-4, atol=1e-4)
    assert same(snapshot(adapter.unload()), source)


def test_bn_equals_the_models_own_train_mode_norms(model):
    x, reference = drifted(), copy.deepcopy(model)
    for m in reference.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
            m.train()
    with torch.no_grad():
        expected = reference(x)
    adapter = delta_tta.adapt(copy.deepcopy(model), "bn", guard="off")  # to an untrained net all noise is of one class
    assert torch.allclose(adapter(x), expected, rtol=1e-3, atol=1e-3)


def test_the_baked_model_answers_as_the_frozen_adapter(model):
    adapter = delta_tta.adapt(copy.deepcopy(model), "tent+delta", "cifar10-c", guard=UNTRAINED)
    for step in range(4):
        adapter(drifted(step))
    frozen = adapter.predict(drifted(9))
    plain = adapter.unload(keep=True)
    assert not any("delta_tta" in type(m).__module__ for m in plain.modules())
    with torch.no_grad():
        difference = (plain(drifted(9)) - frozen).abs().max()
    assert difference <= 1e-5 * max(1.0, float(frozen.abs().max()))


def test_timm_layers_have_activations_to_lose():
    """The test above means something: these models do carry activations inside their batch norms."""
    model = timm.create_model("regnetx_002", num_classes=7)
    assert any(type(m).__name__ == "BatchNormAct2d" and isinstance(m.act, torch.nn.ReLU) for m in model.modules())


@pytest.mark.parametrize("name", ["torchvision resnet18", "timm regnetx_002"])
@pytest.mark.parametrize("method", ["tent+delta", "tent"])
def test_torch_export_of_the_baked_model(name, method):
    adapter = fitting(settled(MODELS[name]), method, "cifar10-c", guard=UNTRAINED)
    for step in range(3):
        adapter(drifted(step))
    x = drifted(9)
    expected = adapter.predict(x)
    program = torch.export.export(adapter.unload(keep=True), (x,))
    assert torch.allclose(program.module()(x), expected, rtol=1e-4, atol=1e-5)


# torch's exporter warns about its own use of older interfaces
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_export_of_the_baked_model():
    adapter = delta_tta.adapt(settled(MODELS["timm regnetx_002"]), "tent+delta", "cifar10-c", guard=UNTRAINED)
    for step in range(3):
        adapter(drifted(step))
    x, file = drifted(9), io.BytesIO()
    expected = adapter.predict(x)
    torch.onnx.export(adapter.unload(keep=True), (x,), dynamo=True, verbose=False).save(file)
    session = onnxruntime.InferenceSession(file.getvalue(), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(logits, expected.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [("vit_tiny_patch16_224", {"img_size": SIZE}), ("resnet50_gn", {})],
    ids=["layer norm", "group norm"],
)
@pytest.mark.parametrize(
    "method", ["tent+dot", "eta+dot+lame", *(pytest.param(m, marks=pytest.mark.slow) for m in ("cotta", "memo"))]
)
def test_models_without_batch_norm_where_the_method_allows(name, options, method):
    model = timm.create_model(name, num_classes=7, **options).eval()
    source, x = snapshot(model), drifted()[:4]
    with torch.no_grad():
        before = model(x)
    adapter = fitting(model, method, update="every", lr=1e-3, views=2, threshold=1.0, similarity=1.0)
    for step in range(2):
        assert adapter(drifted(step)[:4]).isfinite().all()
    assert not torch.equal(adapter(x), before)
    assert same(snapshot(adapter.unload()), source)
    with pytest.raises(delta_tta.ModelError, match=r"the model has none\. Write 'tent\+dot' instead"):
        delta_tta.adapt(model, "tent+delta")
