"""ETA's filter and its average."""

import torch

from delta_tta.prediction import Prediction
from delta_tta.similarity import differs, next_average


def prediction(*rows):
    return Prediction(torch.tensor(rows).log())


def test_before_there_is_an_average_all_that_was_selected_differs():
    seen = prediction([0.9, 0.1], [0.2, 0.8])
    assert differs(seen, None, {}, 0.05).tolist() == [True, True]
    assert differs(seen, torch.tensor([False, True]), {}, 0.05).tolist() == [False, True]


def test_only_selected_samples_that_differ_pass():
    seen, state = prediction([0.9, 0.1], [0.01, 0.99]), {"average": torch.tensor([0.9, 0.1])}
    assert differs(seen, None, state, 0.5).tolist() == [False, True]
    assert differs(seen, torch.tensor([True, False]), state, 0.5).tolist() == [False, False]


def test_the_average_moves_by_a_tenth_of_the_kept_samples():
    seen = prediction([0.9, 0.1], [0.2, 0.8])
    first = next_average(seen, torch.tensor([False, True]), {})
    assert torch.allclose(first["average"], torch.tensor([0.2, 0.8]))
    second = next_average(seen, torch.tensor([True, False]), first)
    assert torch.allclose(second["average"], torch.tensor([0.27, 0.73]))
    assert next_average(seen, torch.tensor([False, False]), second) is second
