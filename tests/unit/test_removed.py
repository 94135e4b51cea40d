"""Every old name that CHANGELOG.md lists works, or an error says in one sentence what to write instead."""

import importlib
import re
import warnings
from pathlib import Path

import pytest
import torch

import delta_tta
from delta_tta import Guard, MethodError, SettingError, Settings, Signals, StateError, report
from delta_tta.errors import InputError
from delta_tta.paper import ResultIndex
from delta_tta.registry import COMPONENTS
from delta_tta.removed import REMOVED
from nets import conv_net

CHANGES = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
X = torch.randn(16, 3, 8, 8)


def adapt(method="tent+delta", **settings):
    return delta_tta.adapt(conv_net(), method, **settings)


def refused(call, error, *words):
    with pytest.raises(error) as found:
        call()
    message = str(found.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def on_the_command_line(*words):
    from typer.testing import CliRunner

    from delta_tta.cli.commands import app

    return CliRunner().invoke(app, words)


def refused_option(command, option):
    result = on_the_command_line(command, "tent", option)
    assert result.exit_code == 2
    said = " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())
    assert f"got '{option}', which is gone: methods are the same in `adapt` and on the command line" in said


def recommended_is_cautious():
    assert adapt(None).settings.guard == "on"
    refused(lambda: adapt("tent+delta-b"), MethodError, "'delta-b', which is gone: write 'anchored+dot'")


def guard_and_small_batches():
    plain, cautious = adapt().settings, adapt(guard="on", update="auto").settings
    assert (plain.guard, plain.update) == ("off", "every")
    assert (cautious.guard, cautious.update) == ("on", "auto")


def balanced_parts():
    refused(lambda: adapt("tent+tbr-b"), MethodError, "'tbr-b', which is gone: write 'anchored'")
    refused(lambda: adapt("delta-b"), MethodError, "write 'anchored+dot'")
    for name in ("alpha_b", "lam_b", "clip_b"):
        refused(lambda name=name: adapt(**{name: 0.9}), SettingError, f"'{name}', which is gone: `+anchored`")
    assert adapt("tent+anchored+dot")(X).shape == (16, 5)


def pace_and_init():
    refused(lambda: adapt(pace="even"), SettingError, "'pace', which is gone: leave it out")
    refused(lambda: adapt(init="auto"), SettingError, "init='first' or init='inherit'", "`anchored`")
    assert adapt(init="inherit").settings.init == "inherit"


def dependent_streams():
    model = adapt("bn")
    model(X)
    refused(lambda: model.signals.dependent, AttributeError, "signals.dependent is gone")
    assert not hasattr(Signals(), "dependent")


def guard_limits():
    for name in ("coherence", "drift", "hasty_agreement"):
        refused(lambda name=name: Guard(**{name: 0.5}), SettingError, f"'{name}', which is gone", "`agreement`")
    assert Guard(agreement=0.8).agreement == 0.8


def a_single_image():
    assert adapt("bn")(X[:1]).isfinite().all()
    assert adapt(None)(X[:1]).isfinite().all()


def baking_the_recommended():
    model = adapt(None)
    model(X)
    assert model.unload(keep=True)(X).shape == (16, 5)


def old_states():
    model = adapt()
    model(X)
    state = model.state_dict()
    for number in range(1, 6):
        old = {**state, "format": f"delta-tta state {number}"}
        del old["checksum"]
        refused(lambda old=old: model.load_state_dict(old), StateError, f"state {number}'", "from the source model")


def pictures():
    from delta_tta.report.pictures import picture_suffix

    refused(lambda: picture_suffix(Path("a.pdf")), InputError, ".png or .svg", "'a.pdf'")


def reports():
    refused(lambda: report.accuracy_over_stream, AttributeError, "report.runs.exhibits_of")
    refused(lambda: report.markdown([]), TypeError, "report.overview.overview")
    assert callable(importlib.import_module("delta_tta.report.runs").exhibits_of)
    assert callable(importlib.import_module("delta_tta.report.overview").overview)


def moves(module, old, new):
    def check():
        with pytest.warns(DeprecationWarning, match=rf"^{module}\.{old} is now"):
            assert getattr(importlib.import_module(module), old) is new

    return check


BROKEN = {
    '`adapt(model, "tent+delta-b")`, or "tent+delta" because it was cautious': recommended_is_cautious,
    "`adapt(model, method, paper=True)`": lambda: refused(lambda: adapt(paper=True), SettingError, "leave out `paper`"),
    "`adapt(model, method)` for its guard, or with batches of fewer than 9 samples": guard_and_small_batches,
    "`+tbr-b`, `+delta-b`, `alpha_b`, `lam_b`, `clip_b`": balanced_parts,
    '`pace`, `init="auto"`': pace_and_init,
    "`bn` and `tent` that got moving averages on dependent streams (`signals.dependent`)": dependent_streams,
    "`Guard(coherence=…, drift=…, hasty_agreement=…)`; the rollback of parameters that move too fast": guard_limits,
    "a single image under `bn` or `tent`, answered by the source": a_single_image,
    "`unload(keep=True)` of the recommended method": baking_the_recommended,
    "`delta-tta compare --defaults`, `delta-tta tune --paper`": lambda: [
        refused_option(*one) for one in (("compare", "--defaults"), ("tune", "--paper"))
    ],
    "`delta_tta.settings.PAPER`": lambda: refused(
        lambda: delta_tta.settings.PAPER,
        AttributeError,
        "delta_tta.settings.PAPER is gone",
        "`Settings()`",
        "`RECOMMENDED_DEFAULTS`",
    ),
    "states of formats 1 to 5": old_states,
    "`demo --picture` and `compare --picture` in any format matplotlib knows": pictures,
    "`delta_tta.report.accuracy_over_stream`, `delta_tta.report.markdown(results)`": reports,
}


def table(heading):
    """Return the first cells of the table that follows a heading."""
    rows = CHANGES[CHANGES.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [row.strip("| ").split(" | ")[0] for row in rows]


def test_the_list_is_that_of_the_changelog():
    assert table("| before | now |") == list(BROKEN)


@pytest.mark.parametrize("before", BROKEN)
def test_what_changed_works_or_says_what_to_write(before):
    BROKEN[before]()


def test_names_that_changed_work_and_warn():
    renames = "`recipe.sentences` is `recipe.all_methods`, `paper.Shelf` is `paper.ResultIndex`, `signals.spoilt` is"
    assert f"{renames} `signals.bad_input`." in CHANGES
    moves("delta_tta.recipe", "sentences", delta_tta.catalog.all_methods)()
    moves("delta_tta.paper", "Shelf", ResultIndex)()
    with pytest.warns(DeprecationWarning, match=r"^signals\.spoilt is now signals\.bad_input\.$") as found:
        assert Signals().spoilt is False
    assert found[0].filename == __file__


def test_what_recipe_listed_is_in_the_catalog():
    for name in ("all_methods", "methods", "Description"):
        moves("delta_tta.recipe", name, getattr(delta_tta.catalog, name))()


def test_no_name_of_today_is_called_gone():
    assert not REMOVED["methods"].keys() & COMPONENTS.keys()
    assert not REMOVED["settings"].keys() & vars(Settings()).keys()
    assert not REMOVED["Guard"].keys() & vars(Guard()).keys()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for command in ("compare", "tune"):
            assert not REMOVED[command].keys() & set(on_the_command_line(command, "--help").output.split())
