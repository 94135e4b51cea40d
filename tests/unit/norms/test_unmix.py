"""UnMix-TNS: its pieces in closed form, its start, and the layers that it cannot un-mix."""

import pytest
import torch
from torch import nn

import delta_tta
from delta_tta import ModelError, SettingError
from delta_tta.norms.samples import normalised, sample_statistics
from delta_tta.norms.unmix import assignment, mixture, moved
from nets import CLASSES, batches, conv_net, flat_net, same, snapshot, volume_net


def doubles(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_sample_belongs_to_the_component_in_whose_direction_it_lies():
    means = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    p = assignment(torch.tensor([[5.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), means)
    other = torch.tensor(-1 / 0.07).exp()
    assert torch.allclose(p[0], torch.stack([1 / (1 + other), other / (1 + other)]))
    assert torch.allclose(p[1:], torch.full((2, 2), 0.5))  # as far from both; and a sample without a direction


def test_the_mixture_is_that_of_all_components_written_out():
    p, mean, var = doubles(5, 3).softmax(1), doubles(5, 4, seed=1), doubles(5, 4, seed=2) ** 2
    means, variances = 100 + doubles(3, 4, seed=3), doubles(3, 4, seed=4) ** 2
    found = mixture(p, mean, var, means, variances)
    for b in range(5):
        mixed = torch.stack([(1 - p[b, k]) * means[k] + p[b, k] * mean[b] for k in range(3)])
        spread = torch.stack([(1 - p[b, k]) * variances[k] + p[b, k] * var[b] for k in range(3)])
        assert torch.allclose(found[0][b], mixed.mean(0))
        assert torch.allclose(found[1][b], spread.mean(0) + mixed.var(0, correction=0))


def test_one_component_is_instance_norm():
    x = batches(1, size=4)[0]
    net = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(3, CLASSES))
    plain = nn.Sequential(nn.InstanceNorm2d(3), *net[1:])
    assert torch.allclose(delta_tta.adapt(net, "unmix-tns", unmix_components=1)(x), plain(x), atol=1e-5)


def test_components_move_to_the_samples_that_are_like_them():
    components, found = torch.tensor([[0.0], [10.0]]), torch.tensor([[4.0], [4.0]])
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert torch.allclose(moved(components, p, found, 0.2), torch.tensor([[0.6], [9.7]]))


@pytest.mark.parametrize("size", [1, 16, 64])
def test_a_small_batch_moves_them_by_less(size):
    x = torch.ones(size, 3, 4, 4)  # every sample is the same, so a batch is one sample at another rate
    net = nn.Sequential(nn.BatchNorm2d(3, momentum=0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, CLASSES))
    adapter = delta_tta.adapt(net, "unmix-tns")
    before = next(iter(adapter.state_dict()["statistics"].values()))["mean"]
    adapter(x)
    after = next(iter(adapter.state_dict()["statistics"].values()))["mean"]
    p = assignment(torch.ones(1, 3), before).T
    rate = 1 - 0.7 ** (size / 64)
    assert torch.allclose(after, before + rate * p * (1 - before), atol=1e-6)


def test_the_start_depends_on_the_seed_and_the_place_of_the_layer():
    def start(**settings):
        return [s["mean"] for s in delta_tta.adapt(two(), "unmix-tns", **settings).state_dict()["statistics"].values()]

    def two():
        return nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, CLASSES))

    (a, b), (c, d), (e, _) = start(), start(), start(seed=1)
    assert torch.equal(a, c)
    assert torch.equal(b, d)
    assert not torch.equal(a, b)
    assert not torch.equal(a, e)


def test_features_without_space_meet_the_source():
    net = flat_net().eval()
    x = batches(1, shape=(6,))[0]
    expected = net(x)
    adapter = delta_tta.adapt(flat_net(), "unmix-tns")
    before = adapter.state_dict()["statistics"]
    assert torch.allclose(adapter(x), expected, atol=1e-6)
    assert all(same(kept, before[name]) for name, kept in adapter.state_dict()["statistics"].items())


@pytest.mark.parametrize(("build", "shape"), [(conv_net, (3, 8, 8)), (volume_net, (2, 4, 4, 4))])
def test_a_sample_is_answered_alike_in_any_company(build, shape):
    x = batches(1, size=6, shape=shape)[0]
    adapter = delta_tta.adapt(build(), "unmix-tns")
    one_by_one = torch.cat([adapter.predict(one[None]) for one in x])
    assert torch.allclose(adapter.predict(x), one_by_one, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 7), (4, 3, 5, 5), (4, 3, 2, 3, 2)])
def test_gradients_of_the_moments_and_of_normalising(shape):
    x = doubles(*shape).requires_grad_()
    weight, bias = doubles(3, seed=1).requires_grad_(), doubles(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(sample_statistics, x)

    def through(x, weight, bias):
        return normalised(x, weight, bias, *sample_statistics(x), 0.1)

    assert torch.autograd.gradcheck(through, (x, weight, bias))
    mean, var = sample_statistics(x)
    values = x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)
    assert torch.allclose(mean, values.mean(2))
    assert torch.allclose(var, values.var(2, correction=0))


def test_what_it_cannot_start_from_is_refused():
    net = conv_net(lambda c: nn.BatchNorm2d(c, momentum=None))
    before = snapshot(net)
    with pytest.raises(ModelError, match="Give unmix_momentum"):
        delta_tta.adapt(net, "unmix-tns")
    assert same(snapshot(net), before)
    assert delta_tta.adapt(net, "unmix-tns", unmix_momentum=0.1)(batches(1)[0]).isfinite().all()
    bare = conv_net(lambda c: nn.BatchNorm2d(c, track_running_stats=False))
    with pytest.raises(ModelError, match="layer '1' has none"):
        delta_tta.adapt(bare, "tent+unmix-tns")


@pytest.mark.parametrize("wrong", [{"unmix_components": 0}, {"unmix_batch": 0}, {"unmix_momentum": 1.5}])
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        delta_tta.adapt(conv_net(), "unmix-tns", **wrong)


def test_the_preset_of_imagenet_counts_batches_of_16():
    x = batches(1, size=16)[0]
    preset, given = (
        delta_tta.adapt(conv_net(), "unmix-tns", preset, **settings)
        for preset, settings in (("imagenet-c", {}), (None, {"unmix_batch": 16}))
    )
    preset(x)
    given(x)
    ours, theirs = preset.state_dict()["statistics"], given.state_dict()["statistics"]
    assert all(same(ours[name], theirs[name]) for name in ours)
    other = delta_tta.adapt(conv_net(), "unmix-tns")
    other(x)
    assert not same(other.state_dict()["statistics"]["1"], ours["1"])
