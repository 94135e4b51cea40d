"""One run as a value."""

import json

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.catalog import all_methods
from delta_tta.corruptions.constants import TYPES, VALIDATION
from delta_tta.errors import SettingError
from delta_tta.experiments import SCENARIOS, Cell, Place
from delta_tta.experiments.experiment import CLEAN, FAMILIES
from delta_tta.streams import StreamSpec

IS_CB, DS_CB = SCENARIOS[:2]


@pytest.mark.parametrize(
    ("corruptions", "order"),
    [(("fog", "snow"), "each"), (("fog",), "mixed"), (("fog",), "shuffled")],
)
def test_the_order_of_a_cell_fits_its_corruptions(corruptions, order):
    with pytest.raises(SettingError, match="one corruption for the order 'each' and several for"):
        Cell(Place(), "tent", IS_CB, corruptions, order)


def test_the_order_of_settings_makes_no_other_cell():
    one, other = ((("alpha", 0.9), ("lam", 0.8)), (("lam", 0.8), ("alpha", 0.9)))
    assert Cell(Place(), "tent", IS_CB, settings=one) == Cell(Place(), "tent", IS_CB, settings=other)


def test_a_cell_says_in_one_line_what_it_is():
    cell = Cell(Place(), "tent+delta", DS_CB, ("fog",), severity=3, settings=(("alpha", 0.9),))
    assert str(cell) == "tent+delta on fog 3, DS+CB (ρ=0.1), seed 2020, B=64, alpha=0.9"
    assert str(Cell(Place(), "bn", IS_CB, FAMILIES, "mixed")) == "bn on mixed, IS+CB, seed 2020, B=64"


@st.composite
def _streams(draw):
    scenario = draw(st.sampled_from(["IS+CB", "DS+CB", "IS+CI", "DS+CI"]))
    rho = draw(st.floats(1e-4, 100)) if scenario.startswith("DS") else None
    pi = draw(st.floats(1e-4, 1)) if scenario.endswith("CI") else None
    pieces = draw(st.integers(1, 30)) if rho is not None else 10
    return StreamSpec(scenario, rho, pi, draw(st.integers(0, 2**32 - 1)), pieces)


METHODS = all_methods()
_NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
_PLACES = st.one_of(
    st.builds(Place, images=st.none() | st.integers(1, 5000)),
    st.builds(
        Place,
        data=st.sampled_from(["cifar", "cifar-c", "imagenet-c", "imagenet-r", "folder", "video"]),
        path=_NAMES,
        model=_NAMES,
        weights=st.none() | _NAMES,
        preset=st.sampled_from([None, "cifar10-c", "imagenet-c"]),
    ),
)


_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.floats(0, 1),
        "lr": st.floats(1e-9, 10),
        "length": st.integers(1, 500),
        "dot": st.sampled_from(["hard", "soft"]),
        "threshold": st.none() | st.floats(0.01, 1),
        "background": st.booleans(),
        "mean": st.none() | st.tuples(*[st.floats(0, 1)] * 3),
    },
)


@st.composite
def _cells(draw):
    names = draw(st.lists(st.sampled_from([*TYPES, *VALIDATION, CLEAN]), min_size=1, max_size=4, unique=True))
    return Cell(
        draw(_PLACES),
        draw(st.sampled_from(METHODS)),
        draw(_streams()),
        corruptions=tuple(names),
        order="each" if len(names) == 1 else draw(st.sampled_from(["continual", "mixed"])),
        severity=draw(st.integers(1, 5)),
        batch_size=draw(st.integers(1, 1000)),
        settings=tuple(draw(_SETTINGS).items()),
        statistics=draw(st.booleans()),
    )


@given(_cells())
@hypothesis.settings(max_examples=60)
def test_a_cell_survives_json(cell):
    assert Cell.from_dict(json.loads(json.dumps(cell.as_dict()))) == cell


def test_a_cell_without_corruptions_is_refused():
    with pytest.raises(SettingError):
        Cell(Place(), "tent", IS_CB, (), "continual")


def test_validation_does_not_depend_on_what_was_asked_before():
    Cell(Place(), "tent", IS_CB, settings=(("background", True),))
    with pytest.raises(SettingError):
        Cell(Place(), "tent", IS_CB, settings=(("background", 1),))
