"""Shared by all tests: one thread per process, fixed seeds, reproducible property tests."""

import os

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)
