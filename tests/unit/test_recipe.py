"""The grammar: what can be written, what it means, and what the refusals teach."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta import MethodError
from delta_tta.catalog import all_methods
from delta_tta.recipe import Recipe, parse
from nets import conv_net


@pytest.mark.parametrize(
    ("method", "recipe"),
    [
        ("source", Recipe("source")),
        ("bn", Recipe("bn")),
        ("tema", Recipe("tema")),
        ("bn+tema", Recipe("tema")),
        ("tent", Recipe("bn", "tent")),
        ("tent+tbr", Recipe("tbr", "tent")),
        ("pl+tema", Recipe("tema", "pl")),
        ("ent-w+dot", Recipe("bn", "ent-w", "dot")),
        ("tent+delta", Recipe("tbr", "tent", "dot")),
        ("tent+dot+tbr", Recipe("tbr", "tent", "dot")),
        (" TENT + Delta ", Recipe("tbr", "tent", "dot")),
        ("Ent-W+DELTA", Recipe("tbr", "ent-w", "dot")),
        ("anchored", Recipe("anchored")),
        ("bn+anchored", Recipe("anchored")),
        ("tent+dot+anchored", Recipe("anchored", "tent", "dot")),
        ("PL+ANCHORED+dot+lame", Recipe("anchored", "pl", "dot", "lame")),
        ("source+sticky", Recipe("source", filter="sticky")),
        ("tent+sticky+delta", Recipe("tbr", "tent", "dot", filter="sticky")),
        ("lame+sticky", Recipe("source", postprocess="lame", filter="sticky")),
        ("tent+anchored+lame+sticky", Recipe("anchored", "tent", None, "lame", "sticky")),
        ("tent+prior-correction+delta", Recipe("tbr", "tent", "dot", "prior-correction")),
        ("roid", Recipe("bn", standalone="roid")),
        ("cotta+sticky", Recipe("bn", filter="sticky", standalone="cotta")),
        ("CMF+sticky", Recipe("bn", filter="sticky", standalone="cmf")),
    ],
)
def test_meaning(method, recipe):
    assert parse(method) == recipe


@pytest.mark.parametrize(
    ("method", "teaches"),
    [
        ("tnet", "Did you mean 'tent'"),
        ("", "Known: "),
        ("tent+", "Known: "),
        ("tent+tbrr", "Did you mean 'tbr'"),
        ("tent+pl", "cannot follow"),
        ("dot", "write 'tent+dot'"),
        ("delta", "write 'tent+delta'"),
        ("tbr", "write 'tent+tbr'"),
        ("source+dot", "minimises none. Write 'tent+dot'"),
        ("bn+delta", "Write 'tent+delta'"),
        ("tema+dot", "minimises none"),
        ("source+tema", "two kinds of statistics"),
        ("source+tbr", "Write 'tent+tbr'"),
        ("bn+dot+tema", "Write 'tent+dot+tema'"),
        ("bn+tbr", "or 'tema'"),
        ("tent+tbr+tema", "choose one"),
        ("tent+dot+dot", "twice"),
        ("tent+delta+dot", "twice ('delta' is 'tbr+dot')"),
        ("tent+delta+anchored", "choose one"),
        ("source+anchored", "two kinds of statistics"),
        ("sticky", "write 'tent+sticky'"),
        ("tent+sticky+sticky", "twice"),
        ("cotta+lame+sticky", "Write 'cotta+sticky', or put the parts behind an objective: 'tent+lame+sticky'"),
        ("memo+sticky+sticky", "twice"),
        ("roid+prior-correction", "does what 'prior-correction' does already"),
        ("tent+lame+prior-correction", "corrects the answer twice"),
        ("lame+dot+sticky", "takes no parts"),
        ("tent+delta-b", "write 'anchored+dot'"),
        ("tema+tema", "twice"),
        (7, "string"),
    ],
)
def test_refusals_say_what_to_write(method, teaches):
    with pytest.raises(MethodError) as error:
        parse(method)
    assert teaches in str(error.value)


@given(st.text(alphabet="abdelnoprstuw-+ 1", max_size=20))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(MethodError):
        assert str(parse(text)) in all_methods()


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("eta+div-w", "does what 'div-w' does already"),
        ("tent+dot+la", "two reweightings"),
        ("cotta+delta", r"a standalone method that takes no parts but a filter\. Write 'cotta'"),
        ("lame+tbr", r"write 'tent\+tbr\+lame'"),
        ("tent+cotta", "cannot follow"),
        ("bn+la", "weighs the samples of a loss"),
    ],
)
def test_what_makes_no_sense_says_why(method, words):
    with pytest.raises(MethodError, match=words):
        delta_tta.adapt(conv_net(), method)
