"""A service that loses its process again and again; run by test_faults.py as a program of its own.

Each life of the service is a fork, killed with SIGKILL; this process never adapts, as threads do not survive a fork.
Argument: an empty folder. Prints what it saw as JSON.
"""

import hashlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import delta_tta
from delta_tta import Checkpointer, checkpoints
from nets import conv_net


def make():
    """Its state is large, for the samples it keeps: most of its time goes into writing it."""
    return delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", update="slow", length=512)


def batch(step):
    return torch.randn(48, 3, 8, 8, generator=torch.Generator().manual_seed(step)) * 1.7 + 0.4


def answer(adapter, step):
    return hashlib.sha256(adapter(batch(step)).numpy().tobytes()).hexdigest()


def serve(folder, log, until, told=None):
    """Answer a stream from where the last life ended, and note each answer."""
    adapter = make()
    saved = Checkpointer(folder, every=1, keep=2).attach(adapter)
    with open(log, "a", buffering=1) as notes:
        for step in range(saved.step, until):
            if told is not None:
                os.write(told, b".")
            notes.write(f"\n{step} {answer(adapter, step)}")


def never_stop(until, log, path):
    adapter = make()
    Path(log).write_text("".join(f"\n{step} {answer(adapter, step)}" for step in range(until)))
    delta_tta.save_state(adapter, path)


def fork(act, *arguments):
    child = os.fork()
    if child:
        return child
    try:
        act(*arguments)
        os._exit(0)
    except BaseException:
        logging.exception("in the child")
        os._exit(1)


def finished(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def newest(folder):
    """Return the number of the newest checkpoint; all of them must be whole."""
    found = sorted(folder.glob("step-*.pt"))
    for path in found:
        checkpoints._read(path)
    return checkpoints._number(found[-1]) if found else 0


def notes_of(log):
    """Return every answer noted for every step; a line that was being written may be cut."""
    lines = [line.split() for line in Path(log).read_text().splitlines()]
    return [(int(line[0]), line[1]) for line in lines if len(line) == 2 and len(line[1]) == 64]


def kill_at_random(folder):
    chance, seen = random.Random(0), {"kills": 0, "leftovers": 0, "steps": 0}
    saved, log = folder / "saved", folder / "log"
    saved.mkdir()
    hears, told = os.pipe()
    for _ in range(30):
        child = fork(serve, saved, log, 10_000, told)
        for _ in range(chance.randint(1, 3)):
            os.read(hears, 1)  # it has begun a batch
        time.sleep(0.01 * chance.random())
        os.kill(child, signal.SIGKILL)
        assert finished(child) == -signal.SIGKILL
        seen["kills"] += 1
        seen["leftovers"] += any(saved.glob(".step-*"))
        now = newest(saved)
        assert now >= seen["steps"], (now, seen)
        seen["steps"] = now
    end = seen["steps"] + 3
    assert finished(fork(serve, saved, log, end)) == 0
    assert sorted(os.listdir(saved)) == [f"step-{end - 1:09d}.pt", f"step-{end:09d}.pt"]
    assert finished(fork(never_stop, end, folder / "expected", folder / "expected.pt")) == 0
    expected, noted = dict(notes_of(folder / "expected")), notes_of(log)
    assert len(expected) == end
    assert all(expected[step] == digest for step, digest in noted)
    states = [checkpoints._read(path) for path in (folder / "expected.pt", saved / f"step-{end:09d}.pt")]
    assert states[0]["checksum"] == states[1]["checksum"]
    return {**seen, "answered": len(noted)}


def save_until_line(folder, stop):
    """Answer one batch and die at the given line of the code that saves."""
    adapter = make()
    saved = Checkpointer(folder, every=1, keep=1).attach(adapter)
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != checkpoints.__file__:
            return None
        lines += event == "line"
        if 0 < lines == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    answer(adapter, saved.step)
    sys.settrace(None)


def kill_at_each_line(folder):
    base, seen = folder / "base", {"lines": 0, "old": 0, "new": 0}
    for _ in range(2):
        assert finished(fork(save_until_line, base, 0)) == 0
    while True:
        work = folder / str(seen["lines"])
        shutil.copytree(base, work)
        code = finished(fork(save_until_line, work, seen["lines"] + 1))
        seen["old" if newest(work) == 2 else "new"] += 1
        if code == 0:
            assert os.listdir(work) == ["step-000000003.pt"]
            return seen
        assert code == -signal.SIGKILL
        assert newest(work) in (2, 3)
        shutil.rmtree(work)
        seen["lines"] += 1


def serve_under_a_limit(folder):
    """No file may grow beyond the limit, as on a disk that is full."""
    adapter, reference = make(), make()
    saved = Checkpointer(folder, every=1, keep=2).attach(adapter)
    errors = []
    logging.getLogger("delta_tta").addHandler(handler := logging.Handler())
    handler.emit = errors.append
    adapter(batch(0)), reference(batch(0))
    whole = newest(folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step, size in enumerate((10, 1000, 20_000, 100_000), 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        assert torch.equal(adapter(batch(step)), reference(batch(step)))
        assert os.listdir(folder) == [f"step-{whole:09d}.pt"]
        assert saved.failures == step
        assert isinstance(saved.last_error, OSError)
        assert "File too large" in str(saved.last_error)
        try:
            delta_tta.save_state(adapter, folder / f"step-{whole:09d}.pt")
        except OSError:
            newest(folder)  # the file from before, whole
        else:
            raise AssertionError("it did not notice")
    assert len(errors) == 1
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    adapter(batch(5)), reference(batch(5))
    assert (newest(folder), saved.failures, saved.last_error) == (6, 4, None)


def limit_the_size_of_files(folder):
    assert finished(fork(serve_under_a_limit, folder)) == 0
    return {"failures": 4, "newest": newest(folder)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    make()  # imports all that the children need
    seen = {}
    for name, act in {
        "killed at random": kill_at_random,
        "killed at each line": kill_at_each_line,
        "under a limit": limit_the_size_of_files,
    }.items():
        (folder := Path(sys.argv[1]) / name).mkdir()
        seen[name] = act(folder)
    print(json.dumps(seen))
