"""Several ranks with shares of a batch are one process with the whole batch, step by step."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delta_tta
from all_methods import fitting
from delta_tta.recipe import parse
from nets import batches, conv_net, forget_statistics, with_blank

pytestmark = pytest.mark.xdist_group("sync")  # one launch serves them all

SCRIPT = Path(__file__).parent / "script.py"
STEPS = 11
METHODS = [
    "bn",
    "tema",
    "tent",
    "pl",
    "ent-w",
    "eta",
    "tent+delta",
    "pl+delta",
    "ent-w+delta",
    "eta+delta",
    "anchored",
    "tent+anchored",
    "tent+anchored+dot+mirror+sticky",
    "source+mirror+sticky",
    "tent+delta+prior-correction",
]
SETTINGS = {"guard": "on", "lr": 0.02, "optimizer": "sgd", "threshold": 0.9, "similarity": 0.9}
SPECIAL = {
    "tent+delta": {"optimizer": "adam", "lr": 1e-3, "init": "inherit"},
    "eta+delta": {"dot": "soft"},
    "tent": {},
    "ent-w+tbr+kl-div": {"kl_weight": 3.0},
    "ent-w+tbr+sample-drop": {},
    "tent+tema": {"lr": 1e-4},
    "tent+anchored+dot": {"alpha": 0.8},
    "anchored+mirror+sticky": {"filter": "causal"},
    "bn": {"prior": 5.0},
}
EVEN = [[6, 6]] * STEPS
UNEVEN = [[7, 1, 4], [0, 12, 0], [4, 4, 4], [12, 0, 0], [1, 10, 1], [3, 0, 9], *[[2, 8, 2]] * 5]


def torchrun(folder, ranks, runs):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT),
        str(folder), json.dumps(runs),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def alone(method, settings):
    """One process with the whole batches."""
    adapter = fitting(conv_net().double(), method, **settings)
    answers = [adapter(x) for x in with_blank(batches(STEPS, 12, dtype=torch.float64), 4)]
    return answers, adapter.state_dict(), adapter.signals


def tensors(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, f"{name}.{key}")


def check(folder, method, shares, settings):
    answers, state, signals = alone(method, settings)
    ranks = [torch.load(folder / f"{method}-{rank}.pt", weights_only=True) for rank in range(len(shares[0]))]
    for step, whole in enumerate(answers):
        together = torch.cat([rank["answers"][step] for rank in ranks])
        assert torch.allclose(together, whole, atol=1e-6, rtol=0), f"{method}, step {step}"
    wanted = dict(tensors(state))
    assert bool(wanted) == (method != "bn")
    for rank in ranks:
        for name, value in tensors(rank["state"]):
            assert torch.allclose(value.double(), wanted[name].double(), atol=1e-6, rtol=0), f"{method}{name}"
        assert rank["signals"]["used"] == signals.used
        assert rank["signals"]["refused"] == signals.refused == (parse(method).statistics not in ("source", "bn"))
        assert rank["signals"]["share"] == signals.share
        assert rank["signals"]["stays"] == (None if signals.stays is None else pytest.approx(signals.stays, abs=1e-6))
        assert rank["signals"]["entropy"] == pytest.approx(signals.entropy, abs=1e-6)
        assert rank["signals"]["loss"] == (None if signals.loss is None else pytest.approx(signals.loss, abs=1e-6))


def settings_of(method):
    return {**SETTINGS, "threshold": 0.15} if method.startswith("pl") else SETTINGS


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """All methods in one launch: starting processes takes longer than what they do."""
    folder = tmp_path_factory.mktemp("two")
    runs = [{"name": m, "method": m, "shares": EVEN, "settings": settings_of(m)} for m in METHODS]
    runs.append({"name": "differ", "method": "tent", "shares": EVEN, "settings": {}, "other weights": 1})
    done = torchrun(folder, 2, runs)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def three_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("three")
    runs = [{"name": m, "method": m, "shares": UNEVEN, "settings": {**SETTINGS, **more}} for m, more in SPECIAL.items()]
    runs.append({"name": "view", "method": "tent+delta", "shares": UNEVEN, "settings": SETTINGS, "view": True})
    runs.append({"name": "no", "method": "tent+tbr", "shares": UNEVEN, "settings": SETTINGS, "no statistics": True})
    done = torchrun(folder, 3, runs)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_two_ranks_are_one_process(method, two_ranks):
    check(two_ranks, method, EVEN, settings_of(method))


@pytest.mark.slow
def test_the_state_of_a_rank_loads_into_a_process_of_its_own(two_ranks):
    _, wanted, _ = alone("tent+delta", SETTINGS)
    adapter = fitting(conv_net().double(), "tent+delta", **SETTINGS)
    adapter.load_state_dict(torch.load(two_ranks / "tent+delta-1.pt", weights_only=True)["state"])
    for name, value in tensors(adapter.state_dict()):
        assert torch.allclose(value.double(), dict(tensors(wanted))[name].double(), atol=1e-6)


@pytest.mark.slow
def test_models_that_differ_are_refused_on_all_ranks(two_ranks):
    for rank in range(2):
        assert "The models of the ranks differ" in (two_ranks / f"differ-{rank}.txt").read_text()


@pytest.mark.slow
def test_a_model_that_cannot_run_on_nothing_may_have_an_empty_share(three_ranks):
    answers, _, _ = alone("tent+delta", SETTINGS)
    ranks = [torch.load(three_ranks / f"view-{rank}.pt", weights_only=True) for rank in range(3)]
    for step, whole in enumerate(answers):
        assert torch.allclose(torch.cat([rank["answers"][step] for rank in ranks]), whole, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_without_running_statistics_a_first_prediction_is_the_whole_batchs(three_ranks):
    adapter = fitting(forget_statistics(conv_net().double()), "tent+tbr", **SETTINGS)
    whole = adapter.predict(batches(1, 12, dtype=torch.float64)[0])
    ranks = [torch.load(three_ranks / f"no-{rank}.pt", weights_only=True)["answers"][0] for rank in range(3)]
    assert torch.allclose(torch.cat(ranks), whole, atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", SPECIAL)
def test_three_ranks_with_unequal_and_empty_shares_are_one_process(method, three_ranks):
    check(three_ranks, method, UNEVEN, {**SETTINGS, **SPECIAL[method]})


def by_hand(folder, run):
    """Two ranks without torchrun, which would end the others itself when one dies; return their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    command = [sys.executable, str(SCRIPT), str(folder), json.dumps([run])]
    ranks = [subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)}) for rank in range(2)]
    return [rank.wait(timeout=90) for rank in ranks]


@pytest.mark.slow
def test_a_rank_that_dies_gives_the_others_an_error(tmp_path):
    run = {"name": "x", "method": "tent+delta", "shares": EVEN, "settings": {}, "die": [1, 3]}
    assert by_hand(tmp_path, run) == [0, 9]
    said = (tmp_path / "x-0.txt").read_text()
    assert said.startswith("SyncError: Rank 0 of 2 waited for the others in vain")
    assert not (tmp_path / "x-0.pt").exists()


@pytest.mark.slow
def test_a_rank_that_raised_and_goes_on_is_not_mixed_up_with_the_others(tmp_path):
    run = {"name": "x", "method": "tent+delta", "shares": EVEN, "settings": {}, "nan": [1, 3]}
    by_hand(tmp_path, run)
    assert (tmp_path / "x-1.txt").read_text().startswith("SyncError: Rank 1 of 2 is out of step (an earlier call")
    assert (tmp_path / "x-0.txt").read_text().startswith("SyncError: Rank 0 of 2 waited for the others in vain")


@pytest.mark.slow
def test_the_example_runs_as_the_docs_say():
    example = Path(__file__).parents[2] / "examples" / "synchronised.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 ranks, 400 images, accuracy 7" in done.stdout


@pytest.mark.parametrize("method", ["lame", "cotta", "memo", "roid", "cmf", "eata", "tent+delta+lame"])
def test_what_cannot_be_synchronised_says_so(method):
    with pytest.raises(delta_tta.SettingError, match="cannot be synchronised"):
        fitting(conv_net(), method, sync=True)


def test_without_torch_distributed_sync_says_what_to_do():
    with pytest.raises(delta_tta.SettingError, match="init_process_group"):
        delta_tta.adapt(conv_net(), "tent", sync=True)
    with pytest.raises(delta_tta.SettingError, match="unless update='every'"):
        delta_tta.adapt(conv_net(), "tent", sync=True, update="slow")
    with pytest.raises(delta_tta.SettingError, match="False with background=True"):
        delta_tta.adapt(conv_net(), "tent", sync=True, background=True)
