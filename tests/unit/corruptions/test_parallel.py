"""Pieces of work, here and in other processes."""

import os
import signal

import pytest

from delta_tta.corruptions.parallel import in_parallel


def write(path, text):
    path.write_text(f"{text} {os.getpid()} {signal.getsignal(signal.SIGINT) is signal.SIG_IGN}")


def fail(path):
    raise ArithmeticError(f"{path.name} failed")


@pytest.mark.parametrize("workers", [1, 3])
def test_alone_or_with_one_piece_it_is_done_here_and_in_order(tmp_path, workers):
    jobs = [(size, write, (tmp_path / str(size), "done")) for size in (5, 2, 9)][: 3 if workers == 1 else 1]
    steps = in_parallel(jobs, workers)
    for size, *_ in jobs:
        assert not (tmp_path / str(size)).exists()
        assert next(steps) == size
        assert (tmp_path / str(size)).read_text() == f"done {os.getpid()} False"
    assert list(steps) == []


def test_an_error_comes_where_it_happens(tmp_path):
    steps = in_parallel([(1, write, (tmp_path / "a", "done")), (2, fail, (tmp_path / "b",))], 1)
    assert next(steps) == 1
    with pytest.raises(ArithmeticError, match="b failed"):
        next(steps)


@pytest.mark.slow
def test_processes_leave_an_interrupt_to_the_one_that_started_them(tmp_path):
    jobs = [(size, write, (tmp_path / str(size), "done")) for size in (1, 2, 3, 4)]
    assert sorted(in_parallel(jobs, 2)) == [1, 2, 3, 4]
    for size in (1, 2, 3, 4):
        word, process, ignores = (tmp_path / str(size)).read_text().split()
        assert (word, ignores) == ("done", "True")
        assert int(process) != os.getpid()
