"""What all post-processing shares: only a batch that is committed is remembered."""

import pytest
import torch

from delta_tta.postprocess.base import Filter, Postprocess
from delta_tta.settings import Settings


class Counting(Postprocess):
    """Adds the number of batches that were learnt from."""

    def __call__(self, x, logits, run):
        count = self.memory.get("count", torch.zeros(()))
        self.pending = {"count": count + 1}
        return logits + count


@pytest.fixture
def counting():
    return Counting(torch.nn.Identity(), Settings())


def answer(component):
    return component(torch.zeros(1, 2), torch.zeros(1, 2), None).tolist()[0][0]


def test_what_is_not_committed_is_not_remembered(counting):
    assert [answer(counting) for _ in range(3)] == [0, 0, 0]
    assert counting.memory == {}


def test_a_batch_is_remembered_once(counting):
    answer(counting)
    counting.commit()
    assert counting.pending is None
    counting.commit()  # nothing came between
    assert answer(counting) == 1
    counting.commit()
    assert answer(counting) == 2


def test_a_reset_forgets_what_was_remembered_and_what_would_be(counting):
    answer(counting)
    counting.commit()
    answer(counting)
    counting.reset()
    counting.commit()
    assert (counting.memory, counting.pending) == ({}, None)
    assert answer(counting) == 0


def test_the_base_answers_nothing_and_knows_nothing_of_the_stream():
    with pytest.raises(NotImplementedError):
        answer(Postprocess(torch.nn.Identity(), Settings()))
    with pytest.raises(NotImplementedError):
        Filter(Settings())  # it begins with a reset, which each filter has

    class Plain(Filter):
        def reset(self):
            pass

    assert Plain(Settings()).stays is None
