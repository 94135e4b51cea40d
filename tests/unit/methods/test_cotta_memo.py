"""CoTTA: teacher, gate, restore. MEMO: one step per image, then forget. TTA: a mean."""

import copy

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import SettingError
from delta_tta.augmentations import augmix
from delta_tta.augmentations.crops import crops
from delta_tta.augmentations.views import turn_hue
from delta_tta.engine.state import seal
from delta_tta.methods import cotta, memo
from delta_tta.methods.memo import marginal_entropy
from nets import batches, conv_net
from sentences import fitting

SCALE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), "views": 4}


def values(model):
    return {name.replace("source.", ""): p.detach().clone() for name, p in model.named_parameters()}


def test_the_teacher_follows_the_student_slowly():
    net = conv_net().double()
    source = values(net)
    adapter = delta_tta.adapt(net, "cotta", optimizer="sgd", lr=0.1, restore=0.0, gate=0.0, **SCALE)
    teacher = copy.deepcopy(source)
    for x in batches(3, dtype=torch.float64):
        adapter(x)
        student = values(net)
        teacher = {name: 0.999 * teacher[name] + 0.001 * student[name] for name in teacher}
    memory = adapter._updater.objective_memory
    for name, wanted in teacher.items():
        assert torch.allclose(memory[f"teacher.{name}"], wanted, atol=1e-12)
        assert not torch.equal(values(net)[name], source[name])


def test_the_loss_is_the_cross_entropy_of_teacher_and_student():
    x = batches(1)[0]
    for symmetric in (False, True):
        adapter = delta_tta.adapt(conv_net(), "cotta", gate=0.0, symmetric=symmetric, **SCALE)
        p = adapter(x).softmax(1)  # at first teacher and student are one
        entropy = float(-(p * p.log()).sum(1).mean())
        assert adapter.signals.loss == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize(("gate", "passes"), [(0.0, 1), (1.0, 4)])
def test_views_are_made_only_where_the_source_is_unsure(gate, passes):
    net = conv_net()
    calls = []
    net.register_forward_hook(lambda *_: calls.append(1))
    adapter = delta_tta.adapt(net, "cotta", gate=gate, **SCALE)
    adapter(batches(1)[0])
    assert len(calls) == 1 + passes + 1  # the source, the teacher, the student


def test_the_gate_depends_on_the_number_of_classes():
    updater = delta_tta.adapt(conv_net(), "cotta", **SCALE)._updater
    assert [updater._gate(classes) for classes in (2, 10, 11, 100, 1000)] == [0.92, 0.92, 0.72, 0.72, 0.1]


def test_the_share_of_weights_that_fall_back_is_the_restore_rate():
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 5))
    source = values(net)
    adapter = delta_tta.adapt(net, "cotta", optimizer="adam", lr=0.01, restore=0.3, gate=0.0, **SCALE)
    adapter(batches(1)[0])
    back = torch.cat([(p == source[name]).flatten() for name, p in values(net).items() if p.dim() == 2])
    assert float(back.double().mean()) == pytest.approx(0.3, abs=0.01)


def test_there_is_no_second_copy_of_the_modules():
    net = conv_net()
    adapter = delta_tta.adapt(net, "cotta", **SCALE)
    adapter(batches(1)[0])
    assert sum(isinstance(m, nn.Conv2d) for m in adapter.modules()) == 2
    assert isinstance(adapter._updater, cotta.Cotta)


def test_memo_steps_along_the_marginal_entropy_and_forgets():
    net = conv_net()
    source = values(net)
    x = batches(1, size=3)[0]
    adapter = delta_tta.adapt(net, "memo", lr=0.02, **SCALE)
    logits = adapter(x)
    assert all(torch.equal(p, source[name]) for name, p in values(net).items())
    # image by image, plainly: statistics 16/17 source and 1/17 batch, one step of SGD on all parameters
    for i in range(3):
        twin = copy.deepcopy(conv_net()).eval()
        pixels = augmix.augmix(x[i : i + 1] * 0.5 + 0.5, 4, torch.Generator().manual_seed(0))[:, 0]
        copies = (pixels - 0.5) / 0.5
        log_p = plain_forward(twin, copies).log_softmax(1)
        mean = log_p.exp().mean(0)
        loss = -(mean * mean.log()).sum()
        gradients = torch.autograd.grad(loss, list(twin.parameters()))
        with torch.no_grad():
            for p, g in zip(twin.parameters(), gradients, strict=True):
                p -= 0.02 * g
            assert torch.allclose(plain_forward(twin, x[i : i + 1])[0], logits[i], atol=1e-5)
            after = plain_forward(twin, copies).log_softmax(1)
            assert float(marginal_entropy(after)) < float(loss.detach())
        assert float(marginal_entropy(log_p).detach()) == pytest.approx(float(loss.detach()), rel=1e-5)


def plain_forward(net, x):
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            var, mean = torch.var_mean(x.detach(), (0, 2, 3))  # unbiased
            mean, var = (16 * layer.running_mean + mean) / 17, (16 * layer.running_var + var) / 17
            x = (x - mean.view(-1, 1, 1)) / (var + layer.eps).sqrt().view(-1, 1, 1)
            x = x * layer.weight.view(-1, 1, 1) + layer.bias.view(-1, 1, 1)
        else:
            x = layer(x.clone())
    return x


@pytest.mark.parametrize("at_once", [memo.AT_ONCE, 1, 2 * 4 * 3 * 8 * 8])
def test_memo_answers_an_image_the_same_whatever_its_batch(at_once, monkeypatch):
    monkeypatch.setattr(memo, "AT_ONCE", at_once)
    x = batches(1, size=6)[0]
    adapter = delta_tta.adapt(conv_net(), "memo", lr=0.02, **SCALE)
    whole = adapter(x)
    assert torch.allclose(torch.cat([adapter(one) for one in x.split(1)]), whole, atol=1e-6)


def test_tta_is_the_mean_of_the_probabilities_over_crops():
    net, x = conv_net().eval(), batches(1)[0]
    generator = torch.Generator().manual_seed(7)
    pixels = x * 0.5 + 0.5
    with torch.no_grad():
        p = [net((crops(pixels, 1, generator)[0] - 0.5) / 0.5).softmax(1) for _ in range(4)]
    adapter = delta_tta.adapt(conv_net(), "tta", seed=7, **SCALE)
    assert torch.allclose(adapter(x).softmax(1), sum(p) / 4, atol=1e-5)


def test_tta_answers_an_image_the_same_whatever_its_batch():
    x = batches(1, size=6)[0]
    adapter = delta_tta.adapt(conv_net(), "tta", **SCALE)
    assert torch.allclose(torch.cat([adapter(one) for one in x.split(1)]), adapter(x), atol=1e-6)


@pytest.mark.parametrize(("preset", "views"), [("cifar10-c", 32), ("imagenet-c", 64), ("imagenet-r", 64), (None, 64)])
def test_tta_takes_as_many_copies_as_memo(preset, views):
    scale = {"mean": SCALE["mean"], "std": SCALE["std"]}
    for method in ("tta", "memo"):
        assert fitting(conv_net(), method, preset, **scale).settings.views == views


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


def test_frozen_and_integer_parameters_are_not_trained():
    net = conv_net()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.detach().clone()
    adapter = delta_tta.adapt(net, "cotta", **SCALE)
    adapter(batches(1)[0])
    assert torch.equal(net[0].weight, before)
    assert not adapter.unload()[0].weight.requires_grad


def test_a_damaged_teacher_is_refused():
    adapter = delta_tta.adapt(conv_net(), "cotta", **SCALE)
    adapter(batches(1)[0])
    state = adapter.state_dict()
    del state["objective"]["step"]
    with pytest.raises(delta_tta.StateError, match="class frequencies make no sense"):
        adapter.load_state_dict(seal(state))


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
