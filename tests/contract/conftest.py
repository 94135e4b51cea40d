"""Every test of the contract runs for every method, and where it asks for one, under every schedule."""

import pytest
import torch

from delta_tta import dependence
from sentences import FEW, HANDED_OVER, METHODS, SCHEDULES


@pytest.fixture(autouse=True)
def no_batch_is_too_small_to_be_handed_over(monkeypatch):
    monkeypatch.setattr(dependence, "SMALL", 1)


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def pytest_generate_tests(metafunc):
    if "schedule" in metafunc.fixturenames:
        methods = {"every": METHODS, "handed over": HANDED_OVER}
        pairs = [(m, s) for s in SCHEDULES for m in methods.get(s, FEW)]
        ids = [f"{m}-{s}" for m, s in pairs]
        metafunc.parametrize(("method", "schedule"), [(m, SCHEDULES[s]) for m, s in pairs], ids=ids)
    elif "method" in metafunc.fixturenames:
        few = metafunc.definition.get_closest_marker("few") is not None
        metafunc.parametrize("method", FEW if few else METHODS)
