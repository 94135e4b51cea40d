"""How cells are run for a command: the engine, progress on the side, and the end."""

import pytest
import typer

from delta_tta.cli.support.execution import engine_maker, execute, finish
from delta_tta.errors import SettingError
from delta_tta.experiments import Store
from delta_tta.experiments.local_engine import Inline, Workers
from delta_tta.experiments.runner import RunProgress
from laboratory import cell, place


def test_an_engine_is_made_when_it_is_needed(tmp_path):
    assert isinstance(engine_maker("local", tmp_path, 0)(), Inline)
    with pytest.raises(SettingError, match=r"Unknown engine 'rya'\. Did you mean 'ray'"):
        engine_maker("rya", tmp_path)
    made = engine_maker("local", tmp_path, 1, 1)()
    try:
        assert isinstance(made, Workers)
        assert (made.slots, made.threads) == (1, 1)
    finally:
        made.close()


def test_cells_are_run_once_and_each_is_told_on_the_side(tmp_path, capsys):
    where, cache = place(tmp_path / "place"), tmp_path / "cache"
    cells = [cell(where, "source"), cell(where, "bn"), cell(where, "source")]
    with Store(tmp_path / "s.db") as store:
        plan, progress = execute(cells, store, cache, engine_maker("local", cache, 0))
        assert (progress.total, progress.found, progress.done, progress.failed) == (2, 0, 2, {})
        assert store.done(list(plan.cells)) == set(plan.cells)
        said = capsys.readouterr()
        assert said.out == ""
        assert [line.split()[:2] for line in said.err.splitlines()] == [["1/2", "source"], ["2/2", "bn"]]

        def never():
            raise AssertionError("an engine was made")

        _, progress = execute(cells, store, cache, never)  # all is there
        assert (progress.found, progress.done) == (2, 2)


def test_a_cell_that_fails_is_told_and_ends_the_command_with_1(tmp_path, capsys):
    where, cache = place(tmp_path / "place", "without_norms"), tmp_path / "cache"
    with Store(tmp_path / "s.db") as store:
        _, progress = execute(
            [cell(where, "tent"), cell(where, "source")], store, cache, engine_maker("local", cache, 0)
        )
    assert (progress.done, len(progress.failed)) == (1, 1)
    assert "failed: tent on contrast 5" in capsys.readouterr().err
    with pytest.raises(typer.Exit) as ended:
        finish(progress)
    assert ended.value.exit_code == 1
    finish(RunProgress(1, 1.0, done=1))


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupt_says_what_is_kept(tmp_path, capsys, kept):
    class Stopped(Inline):
        def start(self, task):
            raise KeyboardInterrupt

    where, cache = place(tmp_path / "place"), tmp_path / "cache"
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(KeyboardInterrupt):
            execute([cell(where, "source")], store, cache, lambda: Stopped(cache), kept=kept)
        said = capsys.readouterr().err
        assert (f"0 of 1 cells are in {store.path}; the same command continues." in said.replace("\n", "")) == kept
