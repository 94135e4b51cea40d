"""The paper's printed numbers: their structure, and what the tables must say about each other."""

import json
from importlib import resources

import pytest

from delta_tta.errors import InputError
from delta_tta.paper.numbers import printed, tables

NUMBERS = json.loads(resources.files("delta_tta.paper").joinpath("paper.json").read_text(encoding="utf-8"))
CELLS = {
    (table, data, row, column): cell
    for table, sets in NUMBERS.items()
    for data, rows in sets.items()
    for row, columns in rows.items()
    for column, cell in columns.items()
}
CIFAR, IMAGENET = "CIFAR100-C", "ImageNet-C"

# a scenario of tables 9 and 10 → where tables 4 to 6 have it, by the caption of table 9
CAPTION = {
    "IS+CB": ("table-4", "IS+CB"),
    "DS+CB": ("table-5", "0.5"),
    "IS+CI": ("table-6", "IS+CI 0.1"),
    "DS+CI": ("table-6", "DS+CI 0.05"),
}
# the paper against itself: the caption of table 9 says π = 0.1, its numbers are those of π = 0.05
EXCEPTIONS = {
    ("table-9", IMAGENET, "TENT", "IS+CI"): "IS+CI 0.05",
    ("table-9", IMAGENET, "TENT+TBR+DOT", "IS+CI"): "IS+CI 0.05",
}

# (table, data set) → method → what the paper prints as gain of +DELTA, one a column
GAINS = {
    ("table-4", CIFAR): {"PL": [0.7], "TENT": [0.8], "Ent-W": [0.8]},
    ("table-4", IMAGENET): {"PL": [1.6], "TENT": [2.4], "Ent-W": [5.6]},
    ("table-5", CIFAR): {"PL": [13.1, 17.4, 31.2], "TENT": [14.3, 18.8, 33.4], "Ent-W": [14.0, 18.3, 32.6]},
    ("table-5", IMAGENET): {"PL": [14.6, 17.4, 24.3], "TENT": [17.7, 21.0, 28.2], "Ent-W": [30.9, 34.4, 39.1]},
    ("table-6", CIFAR): {
        "PL": [0.4, 0.3, 15.9, 15.7],
        "TENT": [0.8, 0.9, 17.4, 17.3],
        "Ent-W": [0.8, 1.0, 16.9, 16.8],
    },
    ("table-6", IMAGENET): {
        "PL": [1.5, 1.4, 16.0, 15.4],
        "TENT": [2.2, 2.2, 19.8, 19.4],
        "Ent-W": [7.6, 8.2, 34.1, 34.0],
    },
    ("table-7", "CIFAR100"): {"TENT": [0.4], "Ent-W": [0.5]},
    ("table-8", "ImageNet-R"): {"TENT": [0.6], "Ent-W": [1.3]},
    ("table-8", "YTBB-sub"): {"TENT": [24.0], "Ent-W": [24.7]},
}

# sums of a table's values and of its standard deviations, added up from a second transcription, made by hand
TOTALS = {
    "table-2": (600.0, 5.7),
    "table-3": (4090.4, 242.8),
    "table-4": (1274.8, 2.43),
    "table-5": (2824.6, 20.21),
    "table-6": (4380.6, 33.02),
    "table-7": (470.1, 0.62),
    "table-8": (748.5, 2.78),
    "table-9": (1626.9, 8.09),
    "table-10": (3438.3, 24.22),
    "table-11": (686.4, 0),
    "table-12": (610.7, 0),
    "table-13": (493.52, 0),
    "table-14": (748.5, 0),
}


def test_all_tables_are_there_with_all_their_cells():
    assert tables() == tuple(f"table-{number}" for number in range(1, 15))
    count = [sum(key[0] == table for key in CELLS) for table in tables()]
    assert count == [12, 12, 24, 26, 72, 96, 6, 14, 32, 64, 12, 24, 16, 16]


@pytest.mark.parametrize("table", TOTALS)
def test_control_totals(table):
    cells = [cell for key, cell in CELLS.items() if key[0] == table]
    assert sum(value for value, _ in cells) == pytest.approx(TOTALS[table][0], abs=1e-4)
    assert sum(std or 0 for _, std in cells) == pytest.approx(TOTALS[table][1], abs=1e-4)


def test_values_are_possible():
    for (table, data, row, column), cell in CELLS.items():
        where = f"{table}, {data}, {row}, {column}"
        if table == "table-1":
            assert cell in ("up", "slightly up", "slightly down"), where
            continue
        value, std = cell
        assert value >= 0, where
        if not column.endswith((" STD", " R")):
            assert value <= 100, where
        without = table in ("table-11", "table-12", "table-13", "table-14") or row in ("TTA", "MEMO")
        if without:
            assert std is None, where
        else:
            assert std >= 0, where


def test_every_row_of_a_data_set_has_the_same_columns():
    for table, sets in NUMBERS.items():
        for data, rows in sets.items():
            assert len({tuple(columns) for columns in rows.values()}) == 1, (table, data)


def test_data_sets_share_their_rows():
    for table, sets in NUMBERS.items():
        rows = [set(rows) for rows in sets.values()]
        for one in rows[1:]:
            only = {"table-4": {"TTA", "MEMO"}, "table-10": {"KL-div (1e2)", "KL-div (1e3)"}}.get(table, set())
            assert one - rows[0] == only
            assert rows[0] <= one


@pytest.mark.parametrize(("table", "data"), GAINS)
def test_printed_gains_are_the_differences(table, data):
    for method, gains in GAINS[table, data].items():
        columns = NUMBERS[table][data][method]
        for column, gain in zip(columns, gains, strict=True):
            difference = printed(table, data, f"{method}+DELTA", column)[0] - columns[column][0]
            assert difference == pytest.approx(gain, abs=0.01), (method, column)


@pytest.mark.parametrize("data", [CIFAR, IMAGENET])
@pytest.mark.parametrize(
    ("table", "row", "same"),
    [
        ("table-9", "TENT", "TENT"),
        ("table-9", "TENT+TBR+DOT", "TENT+DELTA"),
        ("table-10", "DOT", "Ent-W+DELTA"),
    ],
)
def test_ablations_repeat_the_main_tables(table, row, same, data):
    for scenario, (main, column) in CAPTION.items():
        cell = printed(table, data, row, scenario)
        by_caption = printed(main, data, same, column)
        exception = EXCEPTIONS.get((table, data, row, scenario))
        if exception is None:
            assert cell == by_caption, scenario
        else:
            assert cell == printed(main, data, same, exception) != by_caption, scenario


def test_hard_labels_are_ent_w_delta():
    for column, cell in NUMBERS["table-14"][IMAGENET]["Hard"].items():
        scenario, _, parameter = column.partition(" ")
        main, at = {
            "IS+CB": ("table-4", "IS+CB"),
            "DS+CB": ("table-5", parameter),
            "IS+CI": ("table-6", column),
            "DS+CI": ("table-6", column),
        }[scenario]
        assert cell[0] == printed(main, IMAGENET, "Ent-W+DELTA", at)[0], column


def test_soft_labels_are_a_little_worse():
    rows = NUMBERS["table-14"][IMAGENET]
    for column, (hard, _) in rows["Hard"].items():
        assert 0 < hard - rows["Soft"][column][0] < 0.35, column


def test_the_source_model_does_not_depend_on_the_stream():
    balanced, imbalanced = {CIFAR: 53.5, IMAGENET: 18.0}, {CIFAR: 53.3, IMAGENET: 17.9}
    for (table, data, row, column), cell in CELLS.items():
        if row == "Source" and data in balanced and table != "table-3":
            expected = imbalanced if "IS+CI" in column or "DS+CI" in column else balanced
            assert cell[0] == expected[data], (table, column)
            assert cell[1] in (0, None), (table, column)
    columns = NUMBERS["table-3"][CIFAR]["Source"]
    assert all(columns[f"IS+CB {what}"] == columns[f"DS+CB {what}"] for what in ("STD", "R", "Acc"))


@pytest.mark.parametrize("number", range(4, 11))
def test_the_last_row_is_the_best(number):
    for data, rows in NUMBERS[f"table-{number}"].items():
        *others, last = rows.values()
        for column, (best, _) in last.items():
            assert all(best >= other[column][0] for other in others), (data, column)


def test_delta_helps_whatever_it_is_put_on():
    pairs = [key for key in CELLS if (*key[:2], f"{key[2]}+DELTA", key[3]) in CELLS]
    assert len(pairs) == 6 + 18 + 24 + 2 + 4 + 4 + 6  # tables 4, 5, 6, 7, 8, 11, 12
    for table, data, row, column in pairs:
        assert CELLS[table, data, f"{row}+DELTA", column][0] > CELLS[table, data, row, column][0], (table, row, column)


def test_ent_w_delta_beats_tent_delta_but_for_two_cells():
    """The text says always; the most dependent streams are a tie and a defeat."""
    not_above = {
        key[0:2] + key[3:]
        for key, cell in CELLS.items()
        if key[2] == "Ent-W+DELTA" and cell[0] <= CELLS[(*key[:2], "TENT+DELTA", key[3])][0]
    }
    assert not_above == {("table-5", CIFAR, "0.1"), ("table-12", IMAGENET, "DS+CB (rho=0.01)")}


def test_the_arrows_point_where_the_numbers_go():
    """Down or up against the source model, TENT+DELTA for DELTA; at ρ = 1.0 TENT would go up."""
    for scenario, arrows in NUMBERS["table-1"][CIFAR].items():
        main, column = CAPTION[scenario]
        source = printed(main, CIFAR, "Source", column)[0]
        for method, arrow in arrows.items():
            value = printed(main, CIFAR, {"DELTA": "TENT+DELTA"}.get(method, method), column)[0]
            assert (value > source) == arrow.endswith("up"), (scenario, method)
    assert printed("table-5", CIFAR, "TENT", "1.0")[0] > printed("table-5", CIFAR, "Source", "1.0")[0]


def test_harder_streams_are_harder():
    for data in (CIFAR, IMAGENET):
        for row, columns in NUMBERS["table-5"][data].items():
            falling = [columns[rho][0] for rho in ("1.0", "0.5", "0.1")]
            if data == IMAGENET:
                falling.append(printed("table-12", data, row, "DS+CB (rho=0.01)")[0])
            assert falling == sorted(falling, reverse=row != "LAME"), (data, row)  # which lives on neighbours


def test_seeds_agree():
    for data, columns in NUMBERS["table-13"][IMAGENET].items():
        for method in ("TENT", "TENT+DELTA"):
            values = [columns[f"{method} {seed}"][0] for seed in (2020, 2021, 2022, 2023)]
            assert max(values) - min(values) < 0.4, (data, method)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (("table-2", CIFAR, "TENT+TEMA", "IS+CB"), (21.8, 0.84)),
        (("table-2", CIFAR, "BN adapt", "DS+CB"), (27.3, 1.12)),
        (("table-3", CIFAR, "TENT+TBR", "DS+CB R"), (469.2, 104.2)),
        (("table-3", CIFAR, "BN adapt+TEMA", "IS+CB Acc"), (58.0, 0.2)),
        (("table-4", IMAGENET, "MEMO", "IS+CB"), (23.9, None)),
        (("table-4", CIFAR, "CoTTA*", "IS+CB"), (67.3, 0.13)),
        (("table-5", CIFAR, "TENT", "0.5"), (49.7, 0.40)),
        (("table-5", IMAGENET, "ETA", "0.1"), (9.7, 0.24)),
        (("table-6", IMAGENET, "Ent-W", "DS+CI 0.1"), (11.3, 0.81)),
        (("table-6", CIFAR, "LAME", "IS+CI 0.05"), (50.8, 0.39)),
        (("table-7", "CIFAR100", "BN adapt", "Accuracy"), (76.1, 0.15)),
        (("table-8", "YTBB-sub", "Source", "Acc"), (74.0, 0.0)),
        (("table-9", CIFAR, "TENT+DOT", "DS+CB"), (50.6, 0.37)),
        (("table-10", IMAGENET, "KL-div (1e3)", "DS+CI"), (22.5, 0.60)),
        (("table-11", CIFAR, "TENT", "1"), (1.6, None)),
        (("table-12", IMAGENET, "LAME", "DS+CB (rho=0.01)"), (26.0, None)),
        (("table-13", IMAGENET, "Shot", "TENT+DELTA 2023"), (32.994, None)),
        (("table-14", IMAGENET, "Soft", "DS+CI 0.05"), (44.5, None)),
    ],
)
def test_spot_values(cell, expected):
    assert printed(*cell) == expected


@pytest.mark.parametrize(
    "cell",
    [
        ("table-4", CIFAR, "MEMO", "IS+CB"),  # "--" in the paper
        ("table-10", CIFAR, "KL-div (1e2)", "DS+CB"),
        ("table-5", CIFAR, "TENT", "0.01"),
        ("table-5", "CIFAR10-C", "TENT", "0.1"),
        ("table-1", CIFAR, "IS+CB", "TENT"),  # an arrow
    ],
)
def test_no_number_is_none(cell):
    assert printed(*cell) is None


def test_an_unknown_exhibit_is_refused():
    with pytest.raises(InputError, match=r"'table-15'.* Known: table-1, .*table-9\.$"):
        printed("table-15", CIFAR, "TENT", "IS+CB")
