"""Which replica a stream belongs to, and what an application needs; tests/serve runs replicas on a cluster."""

import pytest

from delta_tta.errors import SettingError

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")
from delta_tta.serve.ray import application, build, replica_of
from delta_tta.serve.security import VARIABLE, Gate
from delta_tta.serve.service import Options
from delta_tta.serve.start import Model

STREAMS = [f"camera {n}" for n in range(1000)]


def test_streams_are_spread_evenly_and_always_alike():
    found = [replica_of(name, 4) for name in STREAMS]
    assert found == [replica_of(name, 4) for name in STREAMS]
    assert all(200 < found.count(number) < 300 for number in range(4))


def test_another_replica_takes_streams_from_all_and_moves_no_others():
    before, after = ([replica_of(name, count) for name in STREAMS] for count in (4, 5))
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {4}
    assert 150 < len(moved) < 250


@pytest.mark.parametrize("options", [Options(), Options(streams="separate"), Options(folder="states")])
def test_replicas_need_separate_states_in_a_folder(options):
    with pytest.raises(SettingError, match="separate streams and a folder for checkpoints"):
        application(Model("resnet20-cifar10"), options, 2, Gate("x" * 16, True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "resnet20-cifar10", "checkpoint": "x"}, "Unknown argument 'checkpoint'. Did you mean 'checkpoints'"),
        ({"checkpoints": "x"}, "the argument model=…, but got checkpoints"),
        ({"model": "resnet20-cifar10"}, "the argument checkpoints=…, but got model"),
        ({}, "but got none"),
    ],
)
def test_arguments_of_the_application(arguments, words):
    with pytest.raises(SettingError, match=words):
        build(arguments)


def test_others_can_reach_it_so_it_needs_a_token(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(SettingError, match=r"a token to serve on 0\.0\.0\.0"):
        build({"model": "resnet20-cifar10", "checkpoints": str(tmp_path)})
