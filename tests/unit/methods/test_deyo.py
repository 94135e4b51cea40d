"""DeYO: shuffled patches, weights, thresholds, seeds."""

import math

import pytest
import torch

import delta_tta
from delta_tta import InputError, SettingError
from delta_tta.methods.deyo import NOT_RUN, Deyo, shuffle_patches
from delta_tta.prediction import Prediction
from delta_tta.settings import Settings, make_settings
from nets import batches, conv_net


def random(seed=0):
    return torch.Generator().manual_seed(seed)


def prediction_of(*rows):
    return Prediction(torch.tensor(rows, dtype=torch.float64).log())


def patches_of(image, n):
    h, w = (side // n for side in image.shape[1:])
    return [image[:, r * h : (r + 1) * h, c * w : (c + 1) * w] for r in range(n) for c in range(n)]


@pytest.mark.parametrize(("size", "n"), [((8, 8), 4), ((8, 12), 4), ((6, 9), 3)])
def test_patches_change_places_and_nothing_else(size, n):
    x = torch.randn(5, 3, *size)
    y = shuffle_patches(x, n, random())
    orders = []
    for image, shuffled in zip(x, y, strict=True):
        own = patches_of(image, n)
        found = [next(i for i, p in enumerate(own) if torch.equal(p, patch)) for patch in patches_of(shuffled, n)]
        assert sorted(found) == list(range(n * n))
        orders.append(tuple(found))
    assert len(set(orders)) == 5  # each image has an order of its own
    assert torch.equal(y, shuffle_patches(x, n, random()))
    assert not torch.equal(y, shuffle_patches(x, n, random(1)))


def test_sides_that_are_no_multiples_are_resized_and_back():
    x = torch.rand(2, 3, 10, 13)
    assert shuffle_patches(x, 4, random()).shape == x.shape
    assert torch.allclose(shuffle_patches(torch.full((1, 1, 10, 13), 0.3), 4, random()), torch.tensor(0.3))
    assert shuffle_patches(x.half(), 4, random()).dtype == torch.float16


def test_plpd_weights_and_thresholds():
    rows = [0.9, 0.05, 0.05], [0.34, 0.33, 0.33], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]
    others = torch.tensor([[0.2, 0.4, 0.4], [0.1, 0.85, 0.05], [0.1, 0.1, 0.8]]).double().log()  # of 1st, 3rd, 4th
    deyo, p, x = Deyo(Settings()), prediction_of(*rows), torch.rand(4, 3, 8, 8)
    given = []
    looked = deyo.look(x, p, lambda images: given.append(images) or others, {})
    assert len(given[0]) == 3  # the unsure one is not run
    assert looked["plpd"].tolist() == pytest.approx([0.7, NOT_RUN, 0.05, 0.1])
    each, selected = deyo.loss(p, looked)
    assert selected.tolist() == [True, False, False, False]
    h = -sum(q * math.log(q) for q in rows[0])
    assert float(each[0]) == pytest.approx((math.exp(0.4 * math.log(3) - h) + math.exp(0.7)) * h)
    low = Deyo(Settings(extra=(("deyo_plpd", 0.08),)))
    assert low.loss(p, looked)[1].tolist() == [True, False, False, True]


def test_the_weight_carries_no_gradient():
    logits = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    p, plpd = Prediction(logits), torch.rand(6).double()
    each, _ = Deyo(Settings()).loss(p, {"plpd": plpd})
    weight = ((0.4 * math.log(3) - p.entropy).exp() + plpd.exp()).detach()
    ours = torch.autograd.grad(each.sum(), logits, retain_graph=True)[0]
    assert torch.allclose(ours, torch.autograd.grad((weight * p.entropy).sum(), logits)[0])


def test_where_no_sample_is_sure_the_model_is_not_run_again():
    def never(images):
        raise AssertionError

    p = prediction_of([0.34, 0.33, 0.33], [0.33, 0.34, 0.33])
    looked = Deyo(Settings()).look(torch.rand(2, 3, 8, 8), p, never, {})
    assert looked["plpd"].tolist() == [NOT_RUN, NOT_RUN]


def test_published_defaults():
    s = make_settings("imagenet-c", {}, [Deyo])
    assert (s.reduction, Deyo(s).threshold) == ("selected", 0.5)
    assert s.options(Deyo.Options) == Deyo.Options(deyo_margin=0.4, deyo_plpd=0.2, deyo_patches=4)


@pytest.mark.parametrize("wrong", [{"deyo_margin": -1}, {"deyo_plpd": 1.5}, {"deyo_patches": 1}, {"deyo_patches": 2.5}])
def test_settings_are_checked(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        delta_tta.adapt(conv_net(), "deyo", **wrong)


def test_orders_differ_by_seed_and_step_and_not_by_what_was_drawn_elsewhere():
    def answers(seed, noise):
        torch.manual_seed(noise)
        adapter = delta_tta.adapt(conv_net(), "deyo", lr=0.05, seed=seed)
        return torch.stack([adapter(x) for x in batches(6, size=12)])

    assert torch.equal(answers(0, 1), answers(0, 2))
    assert not torch.equal(answers(0, 1), answers(1, 1))
    deyo, orders = Deyo(Settings()), []
    for step in (0, 0, 1):
        images = torch.arange(64.0).reshape(1, 1, 8, 8)

        def run(shuffled):
            orders.append(shuffled.flatten().tolist())
            return torch.zeros(1, 3)

        deyo.look(images, prediction_of([0.98, 0.01, 0.01]), run, {"step": torch.tensor(float(step))})
    assert orders[0] == orders[1] != orders[2]


def test_images_are_needed():
    for shape in ((4, 3, 3, 8), (4, 3, 8)):
        with pytest.raises(InputError, match="4×4 pixels"):
            Deyo(Settings()).look(torch.rand(shape), prediction_of(*[[0.5, 0.5]] * 4), lambda x: x, {})


def test_what_was_looked_at_is_not_remembered():
    adapter = delta_tta.adapt(conv_net(), "deyo+delta", lr=0.05)
    for x in batches(3, size=12):
        adapter(x)
    memory = adapter.state_dict()["objective"]
    assert memory.keys() == {"step"}
    assert memory["step"] == 3
