"""Which batches an edge model does not learn from."""

import numpy as np
import pytest

from delta_tta.edge.guard import SHOWS_NOTHING, EdgeGuard
from delta_tta.edge.network import Network
from delta_tta.signals import Reason
from nets import batches


@pytest.fixture
def network(exported):
    return Network(exported, 1, None)


def refused(network, x):
    """Why a batch is refused, if it is."""
    return EdgeGuard(network).refuses(x, network.measured(network.run(x, first=0)))


def blank(size=16, level=3.0):
    return np.full((size, 3, 8, 8), level, np.float32)


def test_images_are_learnt_from(network):
    assert refused(network, batches(1, size=16)[0].numpy()) is None


@pytest.mark.parametrize("scale", [1e4, 1e-6])
def test_images_out_of_all_proportion_are_not(network, scale):
    assert refused(network, scale * batches(1)[0].numpy()).reason is Reason.OUT_OF_PROPORTION


def test_images_that_are_all_the_same_are_not(network):
    assert refused(network, blank()) == SHOWS_NOTHING
    assert SHOWS_NOTHING.reason is Reason.BLANK


def test_a_few_samples_tell_nothing(network):
    assert refused(network, blank(8)) is None
    assert refused(network, blank(9)) == SHOWS_NOTHING


def test_it_is_not_looked_for_where_the_limit_is_0_or_the_model_was_never_trained(network):
    about = dict(network.about)
    for change in ({"guard": {**about["guard"], "alike": 0}}, {"trained": False}):
        network.about = {**about, **change}
        assert refused(network, blank()) is None
