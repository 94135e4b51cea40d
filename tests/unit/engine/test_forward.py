"""Bad batches and models that answer wrongly: what the errors teach, and that nothing has changed."""

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import fitting
from delta_tta import InputError, ModelError
from nets import batches, conv_net, flatten


@pytest.mark.parametrize(
    ("images", "teaches"),
    [
        ([[1.0]], "tensor"),
        (torch.randn(3), "at least one sample"),
        (torch.randn(0, 3, 8, 8), "at least one sample"),
        (torch.randn(3, 8, 8), "whole batch"),
        (torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8), "torch.float32 on cpu), but got torch.uint8"),
        (torch.randn(4, 3, 8, 8, dtype=torch.float64), "but got torch.float64"),
        (torch.full((4, 3, 8, 8), float("nan")), "samples [0, 1, 2, 3]"),
        (
            torch.randn(4, 3, 8, 8).to_sparse(),
            "dense tensor of ordinary numbers, but got torch.float32, torch.s",
        ),
        (torch.randn(4, 3, 8, 8).to_mkldnn(), "torch._mkldnn, on cpu"),
        (torch.randn(4, 3, 8, 8, device="meta"), "on meta"),
        (torch.randn(4, 3, 8, 8).to(torch.float8_e4m3fn), ".float()"),
    ],
)
def test_bad_batches(images, teaches):
    for method in ("bn", "tent+delta"):
        adapter = fitting(conv_net(), method, guard="off")
        good = batches(1)[0]
        first = adapter(good)
        adapter.reset()
        with pytest.raises(InputError) as error:
            adapter(images)
        assert teaches in str(error.value)
        assert adapter.signals.step == 0
        assert torch.equal(adapter(good), first)


class Marked(torch.Tensor):
    """Everything made from it is of its kind."""


@pytest.mark.parametrize("update", ["every", "slow", "window"])
def test_a_subclass_of_tensor_is_a_tensor(update):
    marked, plain = (delta_tta.adapt(conv_net(), "tent+delta", update=update, length=20) for _ in range(2))
    for x in batches(3):
        logits = marked(x.as_subclass(Marked))
        assert type(logits) is torch.Tensor
        assert torch.equal(logits, plain(x))
        state = flatten(marked.state_dict())
        assert all(type(value) is torch.Tensor for value in state.values())
        assert all(torch.equal(value, state[key]) for key, value in flatten(plain.state_dict()).items())


def test_huge_but_finite_input_is_not_called_infinite():
    adapter, x = delta_tta.adapt(conv_net(), "source"), torch.full((4, 3, 8, 8), 3e38)
    assert torch.equal(adapter(x).nan_to_num(), conv_net().eval()(x).nan_to_num())
    assert (adapter.signals.step, adapter.signals.refused) == (1, 0)


def test_integer_images_are_fine_where_the_model_takes_them():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = conv_net()

        def forward(self, x):
            return self.net(x.float() / 255)

    adapter = delta_tta.adapt(Scaled(), "tent+delta")
    assert adapter(torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8)).isfinite().all()


class Wrapped(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.net, self.wrap = conv_net(), wrap

    def forward(self, x):
        return self.wrap(self.net(x))


@pytest.mark.parametrize(
    ("wrap", "came"),
    [
        (lambda y: {"logits": y}, "dict"),
        (lambda y: y.flatten(), "(60,)"),
        (lambda y: y[:5], "(5, 5)"),
        (lambda y: y[..., None], "(12, 5, 1)"),
    ],
)
def test_a_model_that_does_not_return_logits(wrap, came):
    for method in ("source", "tent+delta"):
        with pytest.raises(InputError) as error:
            delta_tta.adapt(Wrapped(wrap), method)(batches(1)[0])
        assert came in str(error.value)


def test_the_number_of_classes_may_not_change():
    width = [5]
    adapter = delta_tta.adapt(Wrapped(lambda y: y[:, : width[0]]), "tent+delta")
    x = batches(1)[0]
    adapter(x)
    width[0] = 4
    with pytest.raises(InputError, match="over 5 classes as before, but got 4"):
        adapter(x)
    assert adapter.signals.step == 1
    adapter.reset()
    assert adapter(x).shape == (12, 4)


def test_a_model_that_cuts_the_gradient():
    adapter = delta_tta.adapt(Wrapped(lambda y: y.detach()), "tent+delta")
    with pytest.raises(ModelError, match="no gradient"):
        adapter(batches(1)[0])
    assert delta_tta.adapt(Wrapped(lambda y: y.detach()), "tema")(batches(1)[0]).isfinite().all()


def test_an_error_of_the_models_own_is_passed_on():
    with pytest.raises(RuntimeError, match="channels"):
        delta_tta.adapt(conv_net(), "tent")(torch.randn(4, 2, 8, 8))


def test_a_loss_that_is_not_finite_is_not_learnt_from():
    factor = [1.0]
    adapter = delta_tta.adapt(Wrapped(lambda y: y * factor[0]), "tent+delta", lr=0.1)
    xs = batches(3)
    adapter(xs[0])
    before = adapter.state_dict()
    factor[0] = float("inf")
    adapter(xs[1])
    assert adapter.signals.skipped.startswith("not finite: prediction, loss")
    after = adapter.state_dict()
    assert all(torch.equal(v, after["parameters"][k]) for k, v in before["parameters"].items())
    assert torch.equal(before["reweighting"]["z"], after["reweighting"]["z"])
    assert all(torch.equal(v["mean"], after["statistics"][k]["mean"]) for k, v in before["statistics"].items())


@pytest.mark.parametrize("method", ["tema", "tent+delta"])
def test_statistics_that_overflow_are_not_learnt_from(method):
    """Finite images whose variance is not: the answer stays finite, and so does the state."""
    adapter = delta_tta.adapt(conv_net(), method)
    good = batches(3)
    adapter(good[0])
    before = adapter.state_dict()
    bad = good[1].clone()
    bad[0] *= 1e19
    adapter(bad)
    assert adapter.signals.skipped.startswith("not finite: ")
    assert "statistics" in adapter.signals.skipped
    after = adapter.state_dict()
    assert all(torch.equal(v["std"], after["statistics"][k]["std"]) for k, v in before["statistics"].items())
    assert adapter(good[2]).isfinite().all()


@pytest.mark.parametrize("method", ["tema", "pl", "pl+delta", "ent-w", "ent-w+delta", "tent+delta"])
def test_one_row_of_logits_that_is_not_finite_is_not_learnt_from(method):
    """NaN passes no threshold, so the loss may be finite where its gradient and z are not."""
    bad = [False]
    spoil = torch.tensor([float("nan")] + [0.0] * 11).unsqueeze(1)
    adapter = fitting(Wrapped(lambda y: y + spoil if bad[0] else y), method, lr=0.1)
    first, second, third = batches(3)
    adapter(first)
    before = flatten(adapter.state_dict())
    bad[0] = True
    adapter(second)
    assert adapter.signals.skipped.startswith("not finite: prediction")
    after = flatten(adapter.state_dict())
    assert all(torch.equal(before[k], after[k]) for k in before)
    bad[0] = False
    assert adapter(third).isfinite().all()


def test_masked_classes_train_like_absent_ones():
    mask = torch.tensor([0, 0, float("-inf"), 0, 0])
    masked = delta_tta.adapt(Wrapped(lambda y: y + mask), "tent+delta", lr=0.1)
    narrow = delta_tta.adapt(Wrapped(lambda y: y[:, [0, 1, 3, 4]]), "tent+tbr", lr=0.1)
    plain = delta_tta.adapt(Wrapped(lambda y: y + mask), "tent+tbr", lr=0.1)
    for x in batches(4):
        masked(x)
        assert torch.allclose(plain(x)[:, [0, 1, 3, 4]], narrow(x), atol=1e-4)
    assert masked.signals.skipped is None
    assert masked.signals.loss > 0
