"""What the service keeps: after kill -9, SIGTERM, full disks, garbage and control."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from servers import SMALL, TESTS, Server, state_of

import delta_tta
from nets import batches, conv_net

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve")]
TENT = ("--method", "tent+delta+sticky", "--set", "update=every", "--set", "lr=0.01")


def reference(method="tent+delta+sticky", **settings):
    return delta_tta.adapt(conv_net(), method, update="every", lr=0.01, **settings)


def answers(adapter, stream):
    return [adapter(x).numpy() for x in stream]


def eventually(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("streams", ["shared", "separate"])
def test_after_kill_9_it_continues_from_the_last_checkpoint_bit_for_bit(tmp_path, streams):
    stream = batches(14)
    expected = answers(reference(), stream)
    kept = [*TENT, "--checkpoints", tmp_path, "--every", 4, "--seconds", 1000, "--streams", streams]
    names = {"stream": "a/../b"} if streams == "separate" else {}
    with Server(*kept) as running:
        for x, answer in zip(stream[:10], expected[:10], strict=True):
            np.testing.assert_array_equal(running.infer(x, **names), answer)
        if names:
            for x in batches(3, seed=5):
                running.infer(x, stream="another")
        running.kill()
    with Server(*kept) as running:
        for x, answer in zip(stream[8:], expected[8:], strict=True):  # 8 of 10 batches were saved
            np.testing.assert_array_equal(running.infer(x, **names), answer)
        assert any(event["kind"] == "resume" for event in running.status()["events"])
        assert running.end() == 143
    folder = tmp_path / ("shared" if not names else "stream-a%2F..%2Fb")
    assert state_of(folder)[0] == 14
    assert {path.parent for path in tmp_path.glob("*")} == {tmp_path}


def test_killed_at_random_moments_it_never_loses_more_than_promised(tmp_path):
    stream, chance = batches(60), np.random.default_rng(0)
    expected = answers(reference(), stream)
    kept = [*TENT, "--checkpoints", tmp_path, "--every", 3, "--seconds", 1000]
    done = answered = 0
    for _ in range(4):
        with Server(*kept) as running:
            begun = running.status()["checkpoint"]["step"] or 0
            assert answered - 3 < begun + 1 <= answered + 1
            done = begun
            for place in range(begun, begun + int(chance.integers(2, 14))):
                np.testing.assert_array_equal(running.infer(stream[place]), expected[place])
                done = answered = place + 1
            running.kill()
    assert done > 8


def test_time_saves_what_batches_do_not(tmp_path):
    with Server("--checkpoints", tmp_path, "--every", 1000, "--seconds", 0.3) as running:
        running.infer(batches(1)[0])
        eventually(lambda: running.status()["checkpoint"]["step"] == 1)
        assert running.status()["checkpoint"]["age"] < 20
        assert running.metrics()["delta_tta_checkpoint_age_seconds"] < 20
        running.kill()
    with Server("--checkpoints", tmp_path) as running:
        assert running.status()["checkpoint"]["step"] == 1


def test_sigterm_answers_what_has_come_and_saves(tmp_path):
    stream = batches(40)
    with Server(*TENT, "--checkpoints", tmp_path, "--every", 1000, "--seconds", 1000) as running:
        seen = []

        def send():
            try:
                for x in stream:
                    seen.append(running.infer(x))
            except Exception as error:  # the service has ended
                seen.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        eventually(lambda: len(seen) > 5)
        assert running.end() == 143
        sender.join()
    answered = [one for one in seen if isinstance(one, np.ndarray)]
    assert state_of(tmp_path / "shared")[0] in (len(answered), len(answered) + 1)  # the last answer may be on the way
    for found, expected in zip(answered, answers(reference(), stream), strict=False):
        np.testing.assert_array_equal(found, expected)


def test_ctrl_c_saves_like_sigterm(tmp_path):
    with Server(*TENT, "--checkpoints", tmp_path, "--every", 1000, "--seconds", 1000) as running:
        running.infer(batches(1)[0])
        assert running.end(signal.SIGINT) == 130
    assert state_of(tmp_path / "shared")[0] == 1


def test_a_full_disk_stops_no_answer_and_is_told(small_disk):
    stream = batches(12)
    expected = answers(reference(), stream)
    kept = [*TENT, "--checkpoints", small_disk, "--every", 2, "--seconds", 1000]
    with Server(*kept) as running:
        for x, answer in zip(stream[:2], expected[:2], strict=True):
            np.testing.assert_array_equal(running.infer(x), answer)
        eventually(lambda: running.status()["checkpoint"]["step"] == 2)
        room = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
        (small_disk / "filler").write_bytes(b"x" * room)
        for x, answer in zip(stream[2:6], expected[2:6], strict=True):
            np.testing.assert_array_equal(running.infer(x), answer)
        eventually(lambda: running.status()["checkpoint"]["failures"] == 2)
        told = running.status()
        assert "No space left" in told["checkpoint"]["error"]
        assert told["checkpoint"]["step"] == 2
        assert sum(event["kind"] == "failure" for event in told["events"]) == 1
        assert running.metrics()["delta_tta_checkpoint_failing"] == 1
        assert running.metrics()["delta_tta_checkpoint_failures_total"] == 2
        assert running.ask("GET", "/v2/health/ready")[0] == 200
        assert "in memory only" in running.control("snapshot")[1]["done"]
        (small_disk / "filler").unlink()
        for x, answer in zip(stream[6:8], expected[6:8], strict=True):
            np.testing.assert_array_equal(running.infer(x), answer)
        eventually(
            lambda: running.status()["checkpoint"] | {"age": 0} == {"age": 0, "step": 8, "failures": 2, "error": None}
        )
        assert running.metrics()["delta_tta_checkpoint_failing"] == 0
        running.kill()
        assert sum("No space left" in line for line in running.log) == 1
    with Server(*kept) as running:
        for x, answer in zip(stream[8:], expected[8:], strict=True):
            np.testing.assert_array_equal(running.infer(x), answer)


def test_a_read_only_folder_stops_no_answer_and_is_told(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    stream = batches(4)
    with Server(*TENT, "--checkpoints", small_disk, "--every", 2, "--seconds", 0.3) as running:
        for x, answer in zip(stream, answers(reference(), stream), strict=True):
            np.testing.assert_array_equal(running.infer(x), answer)
        eventually(lambda: running.status()["checkpoint"]["failures"] > 1)
        assert "Read-only" in running.status()["checkpoint"]["error"]
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        eventually(lambda: running.status()["checkpoint"]["error"] is None)
        assert running.status()["checkpoint"]["step"] == 4
        assert sum("Read-only" in line for line in running.log) == 1


def test_a_poisoned_stream_changes_nothing_for_the_others(tmp_path):
    stream, chance = batches(8), torch.Generator().manual_seed(3)
    expected = answers(reference(), stream)
    poison = [
        1e6 * torch.randn(12, 3, 8, 8, generator=chance),
        torch.zeros(12, 3, 8, 8),
        torch.full((12, 3, 8, 8), 255.0),
        3e37 * torch.ones(12, 3, 8, 8),
    ]
    with Server(*TENT, "--streams", "separate", "--max-streams", 2, "--checkpoints", tmp_path) as running:
        for number, (x, answer) in enumerate(zip(stream, expected, strict=True)):
            running.infer(poison[number % 4], stream="poisoned")
            running.infer(poison[number % 4], stream=f"another-{number % 2}")  # so that streams come and go
            np.testing.assert_array_equal(running.infer(x, stream="good"), answer)
        assert sum(event["kind"] == "drop" for event in running.status()["events"]) > 4


def test_streams_that_come_back_continue_where_they_were(tmp_path):
    streams = {f"camera {name}": batches(5, seed=name) for name in range(4)}
    expected = {name: answers(reference(), stream) for name, stream in streams.items()}
    with Server(*TENT, "--streams", "separate", "--max-streams", 2, "--checkpoints", tmp_path) as running:
        for turn in range(5):
            for name, stream in streams.items():
                np.testing.assert_array_equal(running.infer(stream[turn], stream=name), expected[name][turn])
        assert len(running.status()["streams"]) == 2
        status, said = running.json("POST", "/v2/models/conv/infer", {"inputs": []})
        assert (status, "one input" in said["error"]) == (400, True)
        with pytest.raises(Exception, match="each stream has its own state"):
            running.infer(batches(1)[0])


def test_a_stream_that_cannot_be_saved_is_not_dropped(small_disk):
    stream = batches(3)
    expected = answers(reference(), stream)
    room = ["--streams", "separate", "--max-streams", 1, "--checkpoints", small_disk]
    with Server(*TENT, *room) as running:
        np.testing.assert_array_equal(running.infer(stream[0], stream="a"), expected[0])
        (small_disk / "filler").write_bytes(b"x" * os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize)
        with pytest.raises(Exception, match=r"503.*No room for another stream: 'a' cannot be saved.*No space left"):
            running.infer(stream[0], stream="b")
        np.testing.assert_array_equal(running.infer(stream[1], stream="a"), expected[1])
        (small_disk / "filler").unlink()
        np.testing.assert_array_equal(running.infer(stream[0], stream="b"), expected[0])
        np.testing.assert_array_equal(running.infer(stream[2], stream="a"), expected[2])


def test_parameters_and_control(tmp_path):
    a, b, c, d = batches(4)
    adapter = reference()
    with Server(*TENT, "--checkpoints", tmp_path) as running:
        infer = running.infer
        assert running.control("rollback") == (
            409,
            {"error": "There is no snapshot and no checkpoint to go back to; take a snapshot first."},
        )
        np.testing.assert_array_equal(infer(a), adapter(a))
        np.testing.assert_array_equal(infer(b, learn=False), adapter.predict(b))
        np.testing.assert_array_equal(infer(b), adapter(b))
        saved = adapter.state_dict()
        assert running.control("snapshot")[1] == {"done": "Snapshot of shared taken, on disk"}
        np.testing.assert_array_equal(infer(c), adapter(c))
        assert running.control("freeze")[0] == 200
        assert running.status()["learning"] is False
        assert running.metrics()["delta_tta_learning"] == 0
        for _ in range(2):
            np.testing.assert_array_equal(infer(d), adapter.predict(d))
        assert running.control("learn")[0] == 200
        assert running.status()["learning"] is True
        np.testing.assert_array_equal(infer(d), adapter(d))
        assert running.control("rollback")[1] == {"done": "shared went back to the last snapshot"}
        running.kill()
    adapter.load_state_dict(saved)
    with Server(*TENT, "--checkpoints", tmp_path) as running:  # the rollback was saved
        infer = running.infer
        np.testing.assert_array_equal(infer(d), adapter(d))
        assert running.control("rollback")[1] == {"done": "shared went back to the last snapshot"}  # it was on disk
        adapter.load_state_dict(saved)
        np.testing.assert_array_equal(infer(c), adapter(c))
        adapter.reset()
        np.testing.assert_array_equal(infer(c, reset=True), adapter(c))
        assert running.control("reset")[1] == {"done": "shared is the source model again"}
        adapter.reset()
        running.kill()
    with Server(*TENT, "--checkpoints", tmp_path) as running:
        np.testing.assert_array_equal(running.infer(b), adapter(b))
        kinds = [event["kind"] for event in running.status()["events"]]
        assert kinds == ["resume", "start"]
        assert running.control("reset", "camera")[0] == 400
        assert running.control("explode")[0] == 404
        for body in (b"[]", b"{", b'{"stream": 7}'):
            assert running.ask("POST", "/control/reset", body, token=running.token)[0] == 400


def test_control_of_one_stream():
    a, b = batches(2)
    left, right = reference(), reference()
    with Server(*TENT, "--streams", "separate") as running:
        assert running.control("reset")[0] == 409
        left(a), right(a)
        for name in ("left", "right"):
            running.infer(a, stream=name)
        assert running.control("freeze", "left")[0] == 200
        np.testing.assert_array_equal(running.infer(b, stream="left"), left.predict(b))
        np.testing.assert_array_equal(running.infer(b, stream="right"), right(b))
        assert running.control("reset", "right")[0] == 200
        right.reset()
        np.testing.assert_array_equal(running.infer(b, stream="right"), right(b))
        np.testing.assert_array_equal(running.infer(a, stream="left"), left.predict(a))
        assert running.control("reset")[1]["done"].endswith("; 2 streams in memory")
        assert [one["batches"] for one in running.status()["streams"]] == [3, 3]


def test_a_frozen_stream_stays_frozen_where_it_goes_and_comes_back(tmp_path):
    a, b = batches(2)
    fresh = reference()
    with Server(*TENT, "--streams", "separate", "--max-streams", 1, "--checkpoints", tmp_path) as running:
        running.infer(a, stream="other")
        assert running.control("freeze", "frozen")[0] == 200
        for _ in range(2):
            running.infer(b, stream="other")  # which drops it from memory
            np.testing.assert_array_equal(running.infer(a, stream="frozen"), fresh.predict(a))
        assert running.control("learn")[0] == 200
        np.testing.assert_array_equal(running.infer(a, stream="frozen"), fresh(a))
        np.testing.assert_array_equal(running.infer(b, stream="frozen"), fresh(b))


def test_a_checkpoint_of_another_method_is_refused(tmp_path):
    with Server("--checkpoints", tmp_path) as running:
        running.infer(batches(1)[0])
        running.end()
    command = [sys.executable, "-c", "from delta_tta.cli import main; main()", "serve", *SMALL, "--method", "bn"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    ports = ["--port", "0", "--grpc-port", "0"]
    done = subprocess.run(
        [*command, "--checkpoints", tmp_path, *ports], capture_output=True, text=True, env=env, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert re.search(r"The checkpoint .* does not fit", done.stderr)
    assert "Traceback" not in done.stderr
    assert state_of(tmp_path / "shared")[0] == 1
