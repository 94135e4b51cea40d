"""The paper's streams, bit for bit: digests of seed 2020 over labels that are contiguous by class."""

import numpy as np
import pytest

from delta_tta.streams import stream

GOLDEN = [
    # classes, per class, scenario, ρ, π, length, unique, digest
    (1000, 50, "IS+CB", None, None, 50000, 50000, "1c0a71b79135d11c"),
    (1000, 50, "DS+CB", 1.0, None, 50000, 50000, "9df25af18c489c3b"),
    (1000, 50, "DS+CB", 0.5, None, 50000, 50000, "1b373f4b06f6dc9c"),
    (1000, 50, "DS+CB", 0.1, None, 50000, 50000, "132c48a4abd4bfba"),
    (1000, 50, "IS+CI", None, 0.1, 50504, 28632, "5dec86ae8233934c"),
    (1000, 50, "IS+CI", None, 0.05, 50503, 26822, "8da037afcb3030af"),
    (1000, 50, "DS+CI", 0.5, 0.1, 50504, 28632, "1bee44cc311b1902"),
    (1000, 50, "DS+CI", 0.5, 0.05, 50503, 26822, "2ec4756f8cad1424"),
    (1000, 50, "DS+CI", 0.1, 0.05, 50503, 26822, "a3b0c7950c40d877"),
    (100, 100, "IS+CB", None, None, 10000, 10000, "a009d6475aa24617"),
    (100, 100, "DS+CB", 1.0, None, 10000, 10000, "1971fdb1261b5126"),
    (100, 100, "DS+CB", 0.5, None, 10000, 10000, "5ecd8583617285eb"),
    (100, 100, "DS+CB", 0.1, None, 10000, 10000, "0588b06d62d3f5f0"),
    (100, 100, "IS+CI", None, 0.1, 10045, 5639, "dc3dd584a0adfffc"),
    (100, 100, "IS+CI", None, 0.05, 10050, 5255, "865ba1825bb4abf4"),
    (100, 100, "DS+CI", 0.5, 0.1, 10045, 5639, "3445fb26e22867f2"),
    (100, 100, "DS+CI", 0.5, 0.05, 10050, 5255, "101f11ab1be7964b"),
    (100, 100, "DS+CI", 0.1, 0.05, 10050, 5255, "fc3d639e281e1ad0"),
]


@pytest.mark.parametrize(("classes", "each", "scenario", "rho", "pi", "length", "unique", "digest"), GOLDEN)
def test_digest(classes, each, scenario, rho, pi, length, unique, digest):
    made = stream(np.repeat(np.arange(classes), each), scenario, rho=rho, pi=pi, seed=2020)
    assert (len(made), len(set(made)), made.digest) == (length, unique, digest)
