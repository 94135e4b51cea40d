"""The lists of methods and components."""

import pickle
from typing import get_args

import delta_tta
from delta_tta.catalog import all_methods
from delta_tta.recipe import parse
from delta_tta.registry import COMPONENTS, Kind


def test_every_method_reads_back_as_itself():
    found = all_methods()
    kinds = {kind: [one for one in COMPONENTS.values() if one.kind == kind] for kind in get_args(Kind)}
    reweightings = 1 + len(kinds["reweighting"])
    losses = sum(reweightings - len(one.has) for one in kinds["objective"])  # eta has div-w already
    alone = sum(one.alone for one in kinds["statistics"])
    behind = 1 + sum(one.part for one in kinds["statistics"])  # bn has no name there
    answers = [None, *(one for one in kinds["postprocess"] if one.part)]
    without_bn = sum(answer is not None and answer.build.runs_parts for answer in answers)
    adapting = len(answers) * (alone + behind * losses) - without_bn * (1 + losses)
    only_alone = sum(one.alone and not one.part for one in kinds["postprocess"])
    assert len(found) == len(set(found)) == 2 * (adapting + only_alone + len(kinds["standalone"]))  # so with sticky
    for sentence in found:
        assert str(parse(sentence)) == sentence


def test_methods_lists_every_component_with_a_line():
    listed = delta_tta.methods()
    expected = ["source", "bn", "tema", "anchored", "tent", "pl"]
    assert [name for name in listed if name in expected] == expected
    assert next(iter(listed)) == "source"
    assert {"+tbr", "+anchored", "+tema", "+dot", "+sticky", "+delta"} <= set(listed)
    assert all(line and "\n" not in line for line in listed.values())


def test_methods_tell_their_settings():
    listed = delta_tta.methods()
    assert listed["source"].settings == ()
    assert listed["+dot"].settings == ("lam", "dot")
    assert set(listed["+delta"].settings) == {*listed["+tbr"].settings, *listed["+dot"].settings}
    again = pickle.loads(pickle.dumps(listed["+dot"]))
    assert (again, again.settings) == (listed["+dot"], ("lam", "dot"))
