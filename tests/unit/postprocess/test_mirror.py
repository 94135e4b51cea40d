"""Mirror images as second opinions: the formula, which half, how much they count, and what is remembered."""

import math

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, fitting, saved_and_loaded
from delta_tta import MethodError
from delta_tta.evidence import MEMORY_OF_ANSWERS, until_next
from delta_tta.postprocess.mirror import mirror_weights
from delta_tta.rules.mirror import PRIOR
from nets import CLASSES, batches, conv_net


def plain(net, stream):
    """The formula, written out sample by sample; returns the log-probabilities of each batch."""
    agreed = weighed = None
    due, answers = 0, []
    for count, x in enumerate(stream):
        with torch.no_grad():
            p, mirrored = net(x).double().softmax(1), net(torch.flip(x, [3])).double().softmax(1)
        if count == due:
            due += max(1, min(32, count // 4))
            if agreed is None:
                agreed = weighed = torch.zeros(p.shape[1], dtype=torch.float64)
            keep = math.exp(-len(x) / MEMORY_OF_ANSWERS)
            agreed, weighed = keep * agreed + (p * mirrored).sum(0), keep * weighed + (p * p).sum(0)
        unsure = p.max(1).values.argsort()[: math.ceil(len(x) / 2)]
        made = p.clone()
        for i in unsure.tolist():
            y = int(p[i].argmax())
            w = (agreed[y] + PRIOR * agreed.sum() / weighed.sum()) / (weighed[y] + PRIOR)
            w = min(1.0, float(w))
            made[i] = (p[i] + w * mirrored[i]) / (1 + w)
        answers.append(made.log())
    return answers


def weights_of(mirror):
    return mirror_weights(mirror.memory["agreed"], mirror.memory["weighed"])


@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_it_is_the_formula(size):
    stream = batches(14, size=size)
    model = delta_tta.adapt(conv_net(), "source+mirror")
    for x, expected in zip(stream, plain(conv_net().eval(), stream), strict=True):
        assert torch.allclose(model(x).log_softmax(1).double(), expected, atol=1e-5)


def test_the_statistics_are_those_of_the_batch_as_it_was_answered():
    first, second = batches(2, size=8)
    model, alone = (fitting(conv_net(), method) for method in ("tema+mirror", "tema"))
    model(first), alone(first)
    with torch.no_grad():
        p, mirrored = (alone.predict(x).softmax(1) for x in (second, second.flip(3)))
    unsure = p.amax(1).argsort()[:4]
    answer = model(second).softmax(1)
    weight = weights_of(model._updater.postprocess)[p[unsure].argmax(1)].unsqueeze(1)
    assert torch.allclose(answer[unsure], (p[unsure] + weight * mirrored[unsure]) / (1 + weight), atol=1e-5)
    sure = p.amax(1).argsort()[4:]
    assert torch.allclose(answer[sure], p[sure], atol=1e-5)


def test_only_the_less_sure_half_is_run_again_but_now_and_then_all():
    net, sizes = conv_net(), []
    model = delta_tta.adapt(net, "source+mirror")
    net.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    for x in batches(20, size=10):
        model(x)
    whole = [batch for batch, size in enumerate(sizes[1::2]) if size == 10]
    assert sizes[::2] == [10] * 20
    assert set(sizes[1::2]) == {5, 10}
    expected, due = [], 0
    while due < 20:
        expected.append(due)
        due += until_next(due)
    assert whole == expected


class Arrows(nn.Module):
    """Tells images that are bright on the left from those on the right, and bright from dark ones."""

    def forward(self, x):
        left, right = x[..., : x.shape[3] // 2].mean((1, 2, 3)), x[..., x.shape[3] // 2 :].mean((1, 2, 3))
        return 4 * torch.stack([left - right, right - left, left + right, -left - right], 1)


def arrows(seed, size=32):
    g = torch.Generator().manual_seed(seed)
    sides = torch.tensor([[1.0, -1], [-1, 1], [1, 1], [-1, -1]])
    labels = torch.randint(4, (size,), generator=g)
    x = sides[labels].repeat_interleave(4, 1).view(size, 1, 1, 8).expand(size, 1, 4, 8)
    return x + 2 * torch.randn(x.shape, generator=g), labels


def test_classes_that_change_in_a_mirror_keep_their_answers():
    model, net = delta_tta.adapt(Arrows(), "source+mirror"), Arrows()
    right, alone, swapped = 0, 0, 0
    for seed in range(30):
        x, labels = arrows(seed)
        right += int((model(x).argmax(1) == labels).sum())
        alone += int((net(x).argmax(1) == labels).sum())
        swapped += int(((net(x).softmax(1) + net(x.flip(3)).softmax(1)).argmax(1) == labels).sum())
    postprocess = model._updater.postprocess
    weights = weights_of(postprocess)
    assert weights[:2].max() < 0.35
    assert weights[2:].min() > 0.9
    assert right > 0.98 * alone
    assert swapped < 0.85 * alone  # what a plain mean would do


class Noisy(nn.Module):
    """Right with noise that differs in the mirror; says nothing of the noise in its confidence."""

    def forward(self, x):
        truth = x[:, :1].mean((2, 3))  # the class, which a mirror does not change
        noise = x[:, 1, 0, :CLASSES]
        return 3 * nn.functional.one_hot(truth.round().long().squeeze(1), CLASSES) + 2.5 * noise


def test_two_opinions_are_better_than_one():
    model, right, alone = delta_tta.adapt(Noisy(), "source+mirror"), 0, 0
    for seed in range(30):
        g = torch.Generator().manual_seed(seed)
        labels = torch.randint(CLASSES, (64,), generator=g)
        x = torch.randn(64, 2, 4, 2 * CLASSES, generator=g)
        x[:, 0] = labels.float().view(64, 1, 1)
        right += int((model(x).argmax(1) == labels).sum())
        alone += int((Noisy()(x).argmax(1) == labels).sum())
    assert right > alone + 0.03 * 64 * 30


@pytest.mark.parametrize("method", ["source+mirror", "anchored+mirror+sticky", "tent+delta+mirror"])
def test_predict_mirrors_and_changes_nothing(method):
    model, (first, second, third) = fitting(conv_net(), method), batches(3, size=12)
    model(first)
    before = saved_and_loaded(model.state_dict())
    answer = model.predict(second)
    assert_same_state(saved_and_loaded(model.state_dict()), before)
    assert torch.equal(model.predict(second), answer)
    other = delta_tta.adapt(conv_net(), method)
    other(first)
    assert torch.equal(other(third), model(third))


def test_reset_forgets_it():
    model, (first, second) = delta_tta.adapt(conv_net(), "source+mirror"), batches(2)
    answer = model(first)
    model(second)
    model.reset()
    assert model.state_dict()["answer"] == {}
    assert torch.equal(model(first), answer)


def test_damaged_weights_are_refused():
    model, (x,) = delta_tta.adapt(conv_net(), "source+mirror"), batches(1)
    model(x)
    state = model.state_dict()
    for wrong in ({**state["answer"], "agreed": torch.ones(CLASSES + 1)}, {"agreed": 3}):
        with pytest.raises(delta_tta.StateError, match="damaged"):
            model.load_state_dict(delta_tta.engine.state.seal({**state, "answer": wrong}))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = conv_net()

    def forward(self, x):
        return self.net(x).index_fill(1, torch.tensor([0]), -math.inf)


def test_a_class_that_is_masked_stays_so():
    model = delta_tta.adapt(Masked(), "source+mirror")
    for x in batches(3):
        answer = model(x)
        assert bool((answer[:, 0] == -math.inf).all())
        assert bool(answer[:, 1:].isfinite().all())


class Broken(nn.Module):
    """Has no finite answer to images whose first pixel is 9."""

    def __init__(self):
        super().__init__()
        self.net = conv_net()

    def forward(self, x):
        return self.net(x).where((x[:, 0, 0, :1] != 9) & (x[:, 0, 0, -1:] != 9), math.nan)


@pytest.mark.parametrize("rows", [[2], [0, 1, 2, 3, 4, 5]])
def test_a_row_that_is_not_finite_does_not_count(rows):
    first, second = batches(2, size=6)
    model = delta_tta.adapt(Broken(), "source+mirror")
    model(first)
    bad = second.clone()
    bad[rows, 0, 0, 0] = 9
    answer = model.predict(bad)
    good = [row for row in range(6) if row not in rows]
    assert bool(answer[rows].isnan().all())
    assert bool(answer[good].isfinite().all())


@pytest.mark.parametrize(
    ("method", "instead"),
    [("bn+mirror", "tema+mirror"), ("tent+mirror", "tent+tbr+mirror"), ("eta+dot+mirror+sticky", "eta+delta+mirror")],
)
def test_each_batchs_own_statistics_do_not_go_with_parts_of_it(method, instead):
    with pytest.raises(MethodError, match=f"Write '{instead.replace('+', '[+]')}"):
        delta_tta.adapt(conv_net(), method)


def test_a_plain_model_leaves_it_behind():
    (x,) = batches(1, size=12)
    model, alone = (fitting(conv_net(), method) for method in ("tema+mirror", "tema"))
    model(x), alone(x)
    assert torch.equal(model.unload(keep=True)(x), alone.unload(keep=True)(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_answers_keep_their_type(dtype):
    model = delta_tta.adapt(conv_net().to(dtype), "source+mirror")
    assert model(batches(1)[0].to(dtype)).dtype == dtype
