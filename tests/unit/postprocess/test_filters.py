"""A filter runs over a batch of this process, or over those of all processes as one."""

import pytest
import torch
import torch.distributed as dist

from delta_tta.distributed import Ranks
from delta_tta.postprocess.base import Filter
from delta_tta.postprocess.filters import filtered
from delta_tta.settings import Settings
from delta_tta.shares.sharpness import sharpness_of_each
from nets import batches


class Noting(Filter):
    """Doubles the logits, and notes what it was given."""

    def reset(self):
        self.given = []

    def answer(self, logits, streams=None, sharpness=None):
        self.given.append((logits, streams, sharpness))
        return 2 * logits, len(self.given)


class Sharp(Noting):
    reads_sharpness = True


@pytest.fixture
def group():
    """A group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Ranks()
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", [Noting, Sharp])
def test_the_filter_gets_the_streams_and_what_it_reads_of_the_images(kind):
    one, x, logits = kind(Settings()), batches(1)[0], torch.randn(12, 4)
    names = ["left", "right"] * 6
    answers, after = filtered(one, x, logits, names, None)
    assert torch.equal(answers, 2 * logits)
    assert after == 1
    ((given, streams, sharpness),) = one.given
    assert given is logits
    assert streams == names
    if kind is Sharp:
        assert sharpness.tolist() == sharpness_of_each(x).tolist()
    else:
        assert sharpness is None


def test_over_several_processes_it_filters_their_batches_as_one(group):
    one, x, logits = Sharp(Settings()), batches(1)[0], torch.randn(12, 4).to(torch.bfloat16)
    answers, after = filtered(one, x, logits, ["left"] * 12, group)
    assert answers.dtype == torch.bfloat16
    assert torch.equal(answers, 2 * logits)
    assert after == 1
    ((given, streams, sharpness),) = one.given
    assert given.dtype == torch.float32
    assert streams is None
    assert sharpness.tolist() == pytest.approx(sharpness_of_each(x).tolist(), abs=1e-5)
