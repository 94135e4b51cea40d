"""The program around the commands: help, version, and options that stand anywhere."""

import shlex

import pytest
import typer

import delta_tta
from command import run
from delta_tta import recipe
from delta_tta.cli.app import EVERYWHERE
from delta_tta.cli.commands import COMMANDS, app
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.experiments.experiment import CLEAN, GROUPS
from delta_tta.paper import BENCHMARKS, EXHIBITS
from delta_tta.streams import StreamSpec


def examples(text):
    lines = text.partition("\nExamples:\n")[2].strip().splitlines()
    assert all(line.strip().startswith("delta-tta ") for line in lines), "nothing comes behind, nothing is wrapped"
    return [shlex.split(line, comments=True)[1:] for line in lines]


def parsed(arguments):
    """Read a command line as the program does, without running it."""
    name = next(word for word in arguments if not word.startswith("-"))
    before, after = arguments[: arguments.index(name)], arguments[arguments.index(name) + 1 :]
    assert {*before} <= {*EVERYWHERE}
    return name, typer.main.get_command(app).commands[name].make_context(name, after).params


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_ends_with_examples_that_can_be_typed(command):
    found = examples(run(*command.split(), "--help", COLUMNS="80").stdout)
    assert 2 <= len(found) <= 4
    for arguments in found:
        name, values = parsed(arguments)
        if command:
            assert name == command
        methods = values.get("method") or values.get("methods") or ()
        for method in [methods] if isinstance(methods, str) else methods:
            if not method.endswith(".db"):
                recipe.parse(method)  # or it raises
        for scenario in values.get("scenario") or ():
            assert StreamSpec.parse(scenario)
        corruptions = values.get("corruption") or values.get("only") or ()
        named = [corruptions] if isinstance(corruptions, str) else corruptions
        assert {*named} <= {*TYPES, *VALIDATION, *GROUPS, CLEAN}
        assert {*(values.get("names") or ())} <= {*EXHIBITS}
        assert values.get("on", "demo") in BENCHMARKS


def test_an_example_with_a_wrong_option_would_be_seen():
    with pytest.raises(Exception, match="No such option"):
        parsed(["demo", "--colour"])


def test_the_program_says_its_exit_codes_and_its_version():
    text = run("-h").stdout
    assert all(f"\n  {code} " in text for code in (0, 1, 2, 130))
    assert "143" in text
    assert run("--version").stdout == f"delta-tta {delta_tta.__version__}\n"


@pytest.mark.parametrize("last", [False, True])
def test_quiet_and_verbose_before_and_behind_the_command(small, last):
    def ordered(word):
        return [*small, "-m", "source", word] if last else [word, *small, "-m", "source"]

    quiet = run(*ordered("-q"))
    assert "contrast" in quiet.stdout
    assert not quiet.stderr
    assert "Results: s.db (1 of 1 cells)" in run(*small, "-m", "source").stderr
    assert "DEBUG 1 cells, 0 of them to run; store s.db" in run(*ordered("--verbose")).stderr
