"""The manners of the command: help, completion, JSON, exit codes, colours, and what it says where data is missing."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import delta_tta
from delta_tta import recipe
from delta_tta.cli.app import EVERYWHERE
from delta_tta.cli.commands import COMMANDS, app
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.experiments.experiment import CLEAN, GROUPS
from delta_tta.paper import BENCHMARKS, EXHIBITS
from delta_tta.streams import StreamSpec
from laboratory import Held, place, until

MAIN = [sys.executable, "-c", "from delta_tta.cli import main; main()"]
ESCAPE = "\x1b["


def run(*arguments, code=0, **environment):
    result = CliRunner(env={"COLUMNS": "160", **environment}).invoke(app, list(arguments), prog_name="delta-tta")
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_TTA_CACHE", str(tmp_path / "cache"))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small(tmp_path):
    """Options of `run` that take some milliseconds."""
    where = place(tmp_path / "place")
    options = ["--data", "cifar", "-c", "contrast", "-b", "10", "--scenario", "IS+CB", "--workers", "0"]
    return ["run", *options, "--path", where.path, "--model", where.model, "--store", "s.db"]


# help


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


# completion


def typed(line):
    """Return the environment in which bash asks what can follow."""
    words = line.split(" ")
    return {"_DELTA_TTA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}


@pytest.mark.parametrize(
    ("line", "offered", "others"),
    [
        ("delta-tta re", ["reproduce", "report"], True),
        ("delta-tta compare ent", ["ent-w"], True),
        ("delta-tta compare source tent", ["tent", "tent+delta", "tent+dot", "tent+tbr"], False),
        ("delta-tta run -m tent+delta+", ["tent+delta+lame"], False),
        ("delta-tta run --scenario DS", ["DS+CB,rho=0.1", "DS+CI,rho=0.5,pi=0.05"], True),
        ("delta-tta run -c fa", ["families"], True),
        ("delta-tta demo --corruption g", ["gaussian_noise", "glass_blur", "gaussian_blur"], True),
        ("delta-tta corrupt out --only al", [], True),
        ("delta-tta reproduce table-2", ["table-2", "table-20", "table-25"], False),
        ("delta-tta reproduce --on ima", ["imagenet-c", "imagenet-r"], True),
        ("delta-tta run --set alph", ["alpha="], False),
        ("delta-tta compare tent --model torch", ["torchvision:"], True),
        ("delta-tta train images --weights r", ["random", "resnet20-cifar10", "resnet20-cifar100"], True),
        ("delta-tta --quiet run --engine r", ["ray"], True),
    ],
)
def test_the_shell_completes_names(line, offered, others):
    found = run(**typed(line)).stdout.split()
    assert {*offered} == {*found} if others else {*offered} <= {*found}
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_what_the_shell_offers_can_be_used():
    methods = run(**typed("delta-tta compare tent")).stdout.split()
    assert {recipe.parse(method).objective for method in methods} == {"tent"}
    scenarios = run(**typed("delta-tta run --scenario ")).stdout.split()
    assert len({StreamSpec.parse(scenario) for scenario in scenarios}) == len(scenarios) >= 4


# JSON


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json(command):
    options = [option for one in typer.main.get_command(app).commands[command].params for option in one.opts]
    assert "--json" in options


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert text.isascii()
    return json.loads(text, parse_constant=refuse)


def test_json_is_all_that_goes_to_the_standard_output(small, tmp_path):
    rows = strict(run(*small, "-m", "source", "-m", "bn", "--json").stdout)
    assert [(row["method"], row["cell"]["corruptions"], row["samples"]) for row in rows] == [
        (method, ["contrast"], 60) for method in ("source", "bn")
    ]
    path, model = small[small.index("--path") + 1], small[small.index("--model") + 1]
    images = ["--clean", path, "--model", model, "--corruption", "contrast"]
    same = ["--workers", "0", "--scenario", "IS+CB", "-b", "10", "--json"]
    compared = strict(run("compare", "source", "bn", *images, *same).stdout)
    assert [row["digest"] for row in compared] == [row["digest"] for row in rows]
    assert [row["accuracy"] for row in compared] == [row["accuracy"] for row in rows]
    run(*small[:-1], "other.db", "-m", "tent")
    changed = strict(run("compare", "s.db", "other.db", "--json").stdout)
    assert changed == {"cells": [], "only_before": 2, "only_after": 1, "mean": None, "error": None, "p": 1.0}
    (one, two) = strict(run("compare", "s.db", "s.db", "--json").stdout)["cells"]
    assert (one["points"], one["changed"], two["cell"]["method"]) == (0, 0, "bn")
    page = strict(run("report", "s.db", "--out", "page.html", "--json").stdout)
    assert page["page"] == "page.html"
    assert {one["kind"] for one in page["exhibits"]} >= {"table", "figure"}
    made = strict(run("corrupt", "out", "--clean", path, "--only", "contrast", "--workers", "1", "--json").stdout)
    assert (made["out"], made["samples"], made["corruptions"]) == ("out", 60, ["contrast"])
    listed = strict(run("methods", "--json").stdout)
    assert {name: (one["line"], tuple(one["settings"])) for name, one in listed.items()} == {
        name: (line, line.settings) for name, line in delta_tta.methods().items()
    }


def test_the_list_of_exhibits_as_json():
    rows = strict(run("reproduce", "--list", "table-4", "table-18", "--json").stdout)
    assert [row["name"] for row in rows] == ["table-4", "table-18"]
    for row in rows:  # each by itself: all cells of the second are in the first, too
        assert row["in_store"] == 0
        assert row["cells"] > 0
        assert row["minutes_left"] > 0


# how it ends, and what it says


def test_exit_codes_of_real_processes(small, tmp_path):
    (tmp_path / "bad.toml").write_text("methods = [")
    for arguments, code, words in (
        ([], 0, ""),  # the shell asks what can follow
        (["run", "bad.toml"], 2, "bad.toml is not readable as TOML"),
        ([*small, "-m", "source", "-m", "lame", "--set", "features=nowhere"], 1, "failed: lame on contrast 5"),
    ):
        environment = {**os.environ, **({} if arguments else typed("delta-tta meth"))}
        ended = subprocess.run([*MAIN, *arguments], env=environment, capture_output=True, text=True)
        assert (ended.returncode, "Traceback" in ended.stderr) == (code, False), ended.stderr
        assert words in ended.stderr
        if not arguments:
            assert ended.stdout.split() == ["methods"]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exit_codes_of_a_process_that_is_stopped(way, code, small, tmp_path):
    held = Held(tmp_path / "place")
    with subprocess.Popen([*MAIN, *small, "-m", "source"], stderr=subprocess.PIPE, text=True) as process:
        until(held.pids, 300, "the network to be reached")
        process.send_signal(way)
        said = process.communicate()[1].splitlines()
    assert process.returncode == code
    assert said[0] == "0 of 1 cells are in s.db; the same command continues."
    assert said[1:] == [f"delta-tta: {'interrupted' if code == 130 else 'told to end'}."]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--colour"], "No such option"),
        (["dmeo"], "No such command 'dmeo'"),
        (["-q", "-v", "methods"], "expected one of them"),
        (["run", "-m", "tent", "--set", "lr"], "Expected --set name=value"),
        (["run", "-m", "tent", "--engine", "rya"], "Did you mean 'ray'"),
        (["compare", "tent", "--model", "resnet20", "--weights", "nowhere.pt"], "Expected weights at nowhere.pt"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments, words):
    result = run(*arguments, code=2)
    assert words in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("wanted", [[], ["--verbose"]])
def test_the_unexpected_is_one_line_unless_details_are_wanted(wanted, small, tmp_path):
    network = tmp_path / "place" / "network.py"
    network.write_text("def make():\n    raise ArithmeticError('two\\nlines')\n")
    said = run(*small, "-m", "source", *wanted, code=1).stderr
    assert "delta-tta: unexpected ArithmeticError: two lines (network.py:2)" in said
    assert ("Traceback" in said) == bool(wanted)
    if not wanted:
        assert said.strip().endswith("run with --verbose to see the traceback.")
        assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("last", [False, True])
def test_quiet_and_verbose_before_and_behind_the_command(small, last):
    def ordered(word):
        return [*small, "-m", "source", word] if last else [word, *small, "-m", "source"]

    quiet = run(*ordered("-q"))
    assert "contrast" in quiet.stdout
    assert not quiet.stderr
    assert "Results: s.db (1 of 1 cells)" in run(*small, "-m", "source").stderr
    assert "DEBUG 1 cells, 0 of them to run; store s.db" in run(*ordered("--verbose")).stderr


def test_errors_are_said_even_quietly_and_a_failed_cell_has_its_traceback(small, tmp_path):
    wrong = [*small, "-m", "source"]
    network = tmp_path / "place" / "network.py"
    network.write_text(network.read_text().replace("return self.head", "self.nothing\n        return self.head"))
    quiet = run("--quiet", *wrong, code=1).stderr
    assert quiet.startswith("failed: source on contrast 5")
    assert len(quiet.splitlines()) == 1
    loud = run("--verbose", *wrong, code=1).stderr
    assert "Traceback" in loud
    assert "self.nothing\n" in loud


def test_colour_where_it_is_wanted():
    assert ESCAPE not in run("methods").stdout
    assert ESCAPE in run("methods", FORCE_COLOR="1", TERM="xterm").stdout
    assert ESCAPE not in run("methods", FORCE_COLOR="1", NO_COLOR="1", TERM="xterm").stdout
    assert ESCAPE in run("compare", "tnet", FORCE_COLOR="1", TERM="xterm", code=2).stderr
    assert ESCAPE not in run("compare", "tnet", code=2).stderr


def test_a_terminal_has_colours_unless_it_wants_no_escape_codes():
    code = "import os; from delta_tta.cli.commands import app\n"
    for name in ("COLOURS", "NO_COLOR"):
        code += f"os.environ['{name}'] = '1'; print('{name}:', flush=True)\n"
        code += "for words in (['methods'], ['--help'], ['wrong']):\n    try: app(words)\n    except SystemExit: pass\n"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    coloured, plain = said.decode().split("NO_COLOR:")
    assert ESCAPE in coloured
    assert "No such command" in plain
    assert ESCAPE not in plain


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("reproduce table-5 --on cifar100", ["--data PATH", "cs.toronto.edu", "cifar-100-python/test"]),
        ("reproduce table-5 --on cifar100 --data nowhere", ["at nowhere", "cs.toronto.edu", "cifar-100-python/test"]),
        ("reproduce table-5 --on cifar100-c", ["--data PATH", "zenodo.org/records/3555552", "labels.npy"]),
        ("reproduce table-5 --on imagenet-c --data nowhere", ["nowhere", "zenodo.org/records/2235448", "fog/5/"]),
        ("reproduce table-8 --on imagenet-r", ["--data PATH", "hendrycks/imagenet-r", "200 sub-folders"]),
        ("reproduce table-8 --on ytbb-sub", ["--data PATH", "path, label, video, time"]),
        ("run -m tent --data cifar", ["`path`", "cs.toronto.edu"]),
        ("run -m tent --data cifar-c --path nowhere", ["nowhere", "zenodo.org", "delta-tta corrupt"]),
        ("run -m tent --data folder --path nowhere", ["at nowhere", "FOLDER/cat/*.png"]),
        ("run -m tent -c none --data video --path nowhere.csv", ["nowhere.csv", "path, label, video, time"]),
        ("compare tent --clean nowhere", ["at nowhere", "cs.toronto.edu"]),
    ],
)
def test_where_data_is_missing_the_message_says_what_to_do(arguments, words, tmp_path):
    *before, said = run(*arguments.split(), code=2).stderr.splitlines()
    assert all(word in said for word in [*words, "--on demo"])
    assert all(line.startswith("On ") for line in before), "on what it would be reproduced"


def test_without_results_or_weights_the_message_says_where_they_come_from():
    assert "`delta-tta run` makes one" in run("report", code=2).stderr
    assert "RobustBench" in run("reproduce", "table-5", "--on", "cifar100-c", "--data", "x", code=2).stderr
