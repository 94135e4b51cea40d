"""NEO's pieces in closed form, and on models whose logits are not those of a plain linear classifier."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import ModelError, SettingError
from delta_tta.models import Outputs
from nets import batches, conv_net, group_norm


class Head(nn.Module):
    """The features are the input; the logits are what `tail` makes of a linear layer's."""

    def __init__(self, tail, width=4, classes=3):
        super().__init__()
        self.fc, self.tail, self.runs = nn.Linear(width, classes), tail, 0
        with torch.random.fork_rng():
            torch.manual_seed(0)
            nn.init.normal_(self.fc.weight)
            nn.init.normal_(self.fc.bias)

    def forward(self, x):
        self.runs += 1
        return self.tail(self.fc(x))


def features(count=3, size=5):
    return [x + 2 for x in batches(count, size=size, shape=(4,), dtype=torch.float64)]


MASK = torch.tensor([0.0, 0.0, float("-inf")], dtype=torch.float64)
TAILS = {
    "plain": (lambda z: z, 1),
    "masked": (lambda z: z + MASK, 1),
    "temperature": (lambda z: z / 1.5, 2),
    "two of three": (lambda z: z[:, [2, 0]], 2),
    "saturated": (torch.tanh, 2),
}


@pytest.mark.parametrize("tail", TAILS)
def test_whatever_follows_the_classifier(tail):
    apply, runs = TAILS[tail]
    model, xs = Head(apply).double().eval(), features()
    adapter, seen = delta_tta.adapt(model, "neo"), []
    for x in xs:
        before = model.runs
        answer = adapter(x)
        assert model.runs - before == runs  # centred by hand, or by another run
        seen.append(x)
        expected = apply(nn.functional.linear(x - torch.cat(seen).mean(0), model.fc.weight, model.fc.bias)).detach()
        assert torch.allclose(answer, expected, atol=1e-12)


def test_a_layer_by_name_and_outputs_of_a_subset():
    net = conv_net(group_norm).double().eval()
    x = batches(1, dtype=torch.float64)[0]
    with torch.no_grad():
        h = net[:-1](x)
        expected = net[-1](h - h.mean(0))
        inner = net[:3](x)
        early = net[3:](inner - inner.mean(0))
    assert torch.allclose(delta_tta.adapt(Outputs(net, [4, 1]), "neo")(x), expected[:, [4, 1]], atol=1e-12)
    assert torch.allclose(delta_tta.adapt(conv_net(group_norm).double(), "neo", features="3")(x), early, atol=1e-12)


def test_logits_move_by_the_same_vector_and_a_shift_of_all_features_by_none():
    model = Head(lambda z: z).double().eval()
    plain, shifted = (delta_tta.adapt(Head(lambda z: z).double(), "neo") for _ in range(2))
    shift = torch.tensor([3.0, -1.0, 0.5, 7.0], dtype=torch.float64)
    for x in features():
        with torch.no_grad():
            change = plain(x) - model(x)
        assert torch.allclose(change, change[:1].expand_as(change), atol=1e-12)
        assert torch.allclose(shifted(x + shift), plain(x), atol=1e-12)


def test_a_single_first_sample_gets_the_bias_and_predict_learns_nothing():
    model = Head(lambda z: z).double()
    adapter, (first, second, third) = delta_tta.adapt(model, "neo"), features()
    assert torch.allclose(adapter.predict(first[:1])[0], model.fc.bias.detach())
    assert not adapter.state_dict()["answer"]
    adapter(first)
    before = adapter.state_dict()["answer"]
    predicted = adapter.predict(second)
    assert torch.equal(adapter.state_dict()["answer"]["mean"], before["mean"])
    assert torch.equal(adapter(second), predicted)
    assert float(adapter.state_dict()["answer"]["seen"]) == 10
    adapter.reset()
    assert torch.equal(adapter(third)[:1], delta_tta.adapt(Head(lambda z: z).double(), "neo")(third)[:1])


class Root(Head):
    """Its features are roots, which negative numbers have none of."""

    def forward(self, x):
        return self.fc(x.sqrt())


@pytest.mark.parametrize("rows", [1, 5])
def test_rows_that_are_not_finite_do_not_move_the_mean(rows):
    model = Root(None).double()
    adapter, twin = (delta_tta.adapt(one, "neo", guard="on") for one in (model, Root(None).double()))
    first, second, third = (x.abs() for x in features())
    adapter(first), twin(first)
    bad = second.clone()
    bad[:rows] = -1
    answer = adapter(bad)[rows:]
    h = second[rows:].sqrt()
    mean = torch.cat([first.sqrt(), h]).mean(0)
    assert torch.allclose(answer, nn.functional.linear(h - mean, model.fc.weight, model.fc.bias).detach(), atol=1e-12)
    assert adapter.signals.skipped.startswith("not finite")
    assert torch.allclose(adapter(third), twin(third), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_needs_no_second_run(dtype):
    model, exact = Head(lambda z: z).to(dtype), delta_tta.adapt(Head(lambda z: z), "neo")
    adapter = delta_tta.adapt(model, "neo")
    for x in features():
        before = model.runs
        assert torch.allclose(adapter(x.to(dtype)).float(), exact(x.float()), atol=0.15)
        assert model.runs == before + 1


def test_the_loss_does_not_see_it():
    with_it, without = (delta_tta.adapt(conv_net(group_norm), method, lr=0.01) for method in ("tent+neo", "tent"))
    for x in batches(3):
        assert not torch.equal(with_it(x), without(x))
    learnt, expected = (adapter.state_dict()["parameters"] for adapter in (with_it, without))
    assert all(torch.equal(learnt[name], value) for name, value in expected.items())


def test_what_is_refused():
    with pytest.raises(SettingError, match="neo_alpha"):
        delta_tta.adapt(conv_net(), "neo", neo_alpha=0.0)
    with pytest.raises(ModelError, match="NEO compares the inputs of the classifier"):
        delta_tta.adapt(nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), "neo")
