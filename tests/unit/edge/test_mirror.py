"""Averaging with mirror images in numpy gives the answers of the component in torch."""

import numpy as np
import torch

from delta_tta.edge.mirror import averaged
from delta_tta.postprocess.mirror import Mirror
from delta_tta.settings import Settings

CLASSES = 4


def model(x):
    """A model that does not know mirror images."""
    weight = torch.randn(3 * 4 * 5, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (x.double().flatten(1) @ weight).float()


def by_numpy(images):
    return model(torch.from_numpy(images)).numpy()


def stream(count, size=9):
    return [torch.randn(size, 3, 4, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(count)]


def test_answers_and_weights_are_the_same_batch_by_batch():
    component, known = Mirror(torch.nn.Identity(), Settings()), None
    partly = []
    for x in stream(30):
        logits, runs = model(x), []

        def run(images, runs=runs):
            runs.append(len(images))
            return by_numpy(images)

        expected = component(x, logits, model)
        component.commit()
        found, known = averaged(x.numpy(), logits.numpy(), known, run)
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(known.agreed, component.memory["agreed"], rtol=1e-4)
        np.testing.assert_allclose(known.weighed, component.memory["weighed"], rtol=1e-4)
        assert (known.batches, known.left) == tuple(int(component.memory[key]) for key in ("batches", "left"))
        partly.append(runs != [9])
    assert partly[:8] == [False] * 8
    assert any(partly)


def test_rows_that_are_not_finite_and_masked_classes_stay_as_they_are():
    (x,) = stream(1)
    logits = by_numpy(x.numpy())
    logits[2] = np.nan
    logits[:, 3] = -np.inf

    def run(images):
        found = by_numpy(images)
        found[:, 3] = -np.inf
        return found

    found, known = averaged(x.numpy(), logits, None, run)
    assert np.isnan(found[2, :3]).all()
    assert (found[[0, 1, 3], 3] == -np.inf).all()
    assert np.isfinite(found[[0, 1, 3], :3]).all()
    assert np.isfinite(known.agreed).all()
    assert known.agreed[3] == 0


def test_where_nothing_can_be_mirrored_nothing_changes():
    x, logits = np.ones((4, 6), np.float32), np.ones((4, CLASSES), np.float32)
    assert averaged(x, logits, None, by_numpy) == (logits, None)
    broken = np.full((4, CLASSES), np.nan, np.float32)
    first = averaged(stream(1, 4)[0].numpy(), by_numpy(stream(1, 4)[0].numpy()), None, by_numpy)[1]
    rare = first.__class__(first.agreed, first.weighed, 40, 5)
    found, known = averaged(stream(1, 4)[0].numpy(), broken, rare, by_numpy)
    assert found is broken
    assert known is rare


def test_nothing_that_was_known_is_changed():
    x = stream(1)[0].numpy()
    logits = by_numpy(x)
    _, known = averaged(x, logits, None, by_numpy)
    before = known.agreed.copy(), logits.copy()
    averaged(x, logits, known, by_numpy)
    assert np.array_equal(known.agreed, before[0])
    assert np.array_equal(logits, before[1])
