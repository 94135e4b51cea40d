"""Labels of a batch, grouped by class."""

import torch

from delta_tta.norms.labels import Labels


def test_every_sample_finds_its_class():
    answers = torch.tensor([4, 1, 4, 4, 0])
    labels = Labels.of(torch.eye(6)[answers])
    assert labels.classes == 6
    assert labels.present.tolist() == [0, 1, 4]
    assert labels.counts.tolist() == [1, 1, 3]
    assert labels.present[labels.group].tolist() == answers.tolist()
