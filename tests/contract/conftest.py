"""Every test of the contract runs for every method, and where it asks for one, under every schedule."""

import pytest
import torch

from all_methods import FEW, METHODS, SCHEDULES

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def pytest_generate_tests(metafunc):
    if "schedule" in metafunc.fixturenames:
        pairs = [(m, s) for s in SCHEDULES for m in (METHODS if s == "every" else FEW)]
        values = [pytest.param(m, SCHEDULES[s], id=f"{m}-{s}", marks=marks(m)) for m, s in pairs]
        metafunc.parametrize(("method", "schedule"), values)
    elif "method" in metafunc.fixturenames:
        few = metafunc.definition.get_closest_marker("few") is not None
        metafunc.parametrize("method", [pytest.param(m, marks=marks(m)) for m in (FEW if few else METHODS)])


def marks(method):
    """Each component at least once in every run of the tests; each pair among the slow ones."""
    return () if method in FEW else pytest.mark.slow
