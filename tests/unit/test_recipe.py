"""The grammar: what can be written, what it means, and what the refusals teach."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta import MethodError
from delta_tta.recipe import Recipe, parse, sentences


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
        ("tent+tbr-b", Recipe("tbr-b", "tent")),
        ("tent+dot+tbr-b", Recipe("tbr-b", "tent", "dot")),
        ("PL+DELTA-B+lame", Recipe("tbr-b", "pl", "dot", "lame")),
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
        ("tent+dot+delta-b", "twice ('delta-b' is 'tbr-b+dot')"),
        ("tent+delta-b+tbr", "choose one"),
        ("bn+tbr-b", "minimises none. Write 'tent+tbr-b'"),
        ("tbr-b", "write 'tent+tbr-b'"),
        ("tema+tema", "twice"),
        (7, "string"),
    ],
)
def test_refusals_say_what_to_write(method, teaches):
    with pytest.raises(MethodError) as error:
        parse(method)
    assert teaches in str(error.value)


def test_every_sentence_reads_back_as_itself():
    found = sentences()
    with_a_loss = 3 * 6 + 2 * 5  # tent, pl, ent-w with no or one of 5 reweightings; eta and eata have div-w already
    assert len(found) == len(set(found)) == 2 * (3 + 4 * with_a_loss) + 3  # with and without lame; cotta, memo, tta
    for sentence in found:
        assert str(parse(sentence)) == sentence


def test_methods_lists_every_word_with_a_line():
    listed = delta_tta.methods()
    assert list(listed)[:6] == ["source", "bn", "tema", "tent", "pl", "ent-w"]
    assert {"+tbr", "+tbr-b", "+tema", "+dot", "+delta", "+delta-b"} <= set(listed)
    assert all(line and "\n" not in line for line in listed.values())


@given(st.text(alphabet="abdelnoprstuw-+ 1", max_size=20))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(MethodError):
        assert str(parse(text)) in sentences()
