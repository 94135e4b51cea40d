"""T3A: which supports stay, what the prototypes are, and where it finds the classifier."""

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import saved_and_loaded
from delta_tta import ModelError, SettingError
from delta_tta.postprocess.t3a import prototypes, surest
from nets import CLASSES, batches, conv_net, flat_net, group_norm
from vision import timm


def state(labels, entropies):
    labels, entropies = torch.tensor(labels).float(), torch.tensor(entropies)
    return {"supports": torch.arange(len(labels)).float().unsqueeze(1), "labels": labels, "entropies": entropies}


def test_each_class_keeps_those_of_lowest_entropy():
    found = surest(state([1, 0, 1, 1, 2, 0], [0.3, 0.9, 0.1, 0.2, 0.5, 0.8]), 2)
    assert found["supports"].flatten().tolist() == [5, 1, 2, 3, 4]
    assert found["labels"].tolist() == [0, 0, 1, 1, 2]
    assert found["entropies"].tolist() == pytest.approx([0.8, 0.9, 0.1, 0.2, 0.5])


def test_of_equal_ones_the_older_stay():
    assert surest(state([0, 0, 0, 0], [0.5, 0.4, 0.4, 0.4]), 2)["supports"].flatten().tolist() == [1, 2]


def test_prototypes_are_mean_directions():
    found = {"supports": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), "labels": torch.tensor([0.0, 0.0, 2.0])}
    half = 0.5**0.5
    assert torch.allclose(prototypes(found, 3), torch.tensor([[half, half], [0.0, 0.0], [0.0, 1.0]]))


def test_the_weights_of_the_classifier_are_the_first_supports():
    net = nn.Sequential(nn.Identity(), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        net[1].weight.copy_(torch.diag(torch.tensor([1.0, 2.0, 3.0])))
    x = torch.tensor([[1.0, 0.0, 0.0]])  # less sure of class 0 than the weight of class 0 is not: the same vector
    adapter = delta_tta.adapt(net, "t3a", t3a_supports=1)
    assert torch.allclose(adapter(x), x)
    kept = adapter.state_dict()["answer"]
    assert kept["labels"].tolist() == [0, 1, 2]
    assert torch.allclose(kept["supports"], torch.eye(3))


def test_supports_are_bounded_and_grow_no_surer_than_the_stream():
    adapter = delta_tta.adapt(conv_net(sharp=1.0), "t3a", t3a_supports=3)
    worst = float("inf")
    for x in batches(8):
        adapter(x)
        kept = adapter.state_dict()["answer"]
        counts = kept["labels"].long().bincount(minlength=CLASSES)
        assert counts.max() <= 3
        if bool((counts == 3).all()):
            now = float(kept["entropies"].max())
            assert now <= worst
            worst = now


@pytest.mark.parametrize("method", ["t3a", "t3a+sticky", "tent+delta+t3a"])
def test_a_saved_state_goes_on_the_same(method):
    adapter = delta_tta.adapt(conv_net(), method)
    first, second = batches(2)
    adapter(first)
    other = delta_tta.adapt(conv_net(), method)
    other.load_state_dict(saved_and_loaded(adapter.state_dict()))
    assert torch.equal(other(second), adapter(second))


def test_predict_answers_as_a_call_would_and_keeps_nothing():
    adapter = delta_tta.adapt(conv_net(), "t3a")
    first, second = batches(2)
    adapter(first)
    before = adapter.state_dict()["answer"]
    predicted = adapter.predict(second)
    after = adapter.state_dict()["answer"]
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert torch.equal(adapter(second), predicted)


def test_learning_does_not_see_the_answers():
    plain, corrected = delta_tta.adapt(flat_net(), "tent+delta"), delta_tta.adapt(flat_net(), "tent+delta+t3a")
    for x in batches(4, shape=(6,)):
        assert not torch.equal(plain(x), corrected(x))
        assert plain.signals.loss == corrected.signals.loss


def test_it_works_without_batch_norm():
    adapter = delta_tta.adapt(conv_net(group_norm), "t3a")
    first, second = batches(2)
    adapter(first)
    assert not torch.equal(adapter(second), delta_tta.adapt(conv_net(group_norm), "t3a")(second))
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=7, img_size=32)
    assert delta_tta.adapt(vit, "t3a")(torch.randn(6, 3, 32, 32)).shape == (6, 7)


def test_masked_classes_stay_masked_and_bad_features_stay_out():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(6, 4)

        def forward(self, x):
            return self.head(x).index_fill(1, torch.tensor([2]), -torch.inf)

    net = Masked()
    adapter = delta_tta.adapt(net, "t3a")
    answers = adapter(torch.randn(8, 6))
    assert answers[:, 2].isneginf().all()
    assert answers[:, [0, 1, 3]].isfinite().all()

    huge = torch.full((1, 6), 3e38)  # finite, but the classifier overflows
    adapter.predict(torch.cat([torch.randn(3, 6), huge]))
    assert adapter.predict(torch.cat([torch.randn(3, 6), huge]))[:3, [0, 1, 3]].isfinite().all()


def test_a_classifier_without_class_weights_is_refused():
    with pytest.raises(ModelError, match="a linear layer with 5 outputs"):
        delta_tta.adapt(conv_net(), "t3a", features="3")(batches(1)[0])
    with pytest.raises(ModelError, match="T3A compares the inputs of the classifier"):
        delta_tta.adapt(nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.MaxPool1d(64)), "t3a")


@pytest.mark.parametrize("most", [0, -1])
def test_sets_without_a_bound_are_refused(most):
    with pytest.raises(SettingError, match="`t3a_supports` to be at least 1"):
        delta_tta.adapt(conv_net(), "t3a", t3a_supports=most)
