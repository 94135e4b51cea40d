"""Tables on the terminal."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from delta_tta.report.console import rich_table
from delta_tta.report.shown import Column, Number, Row, Table


def table(columns=2):
    heads = tuple(Column(f"ρ={n}", "DS+CB" if n % 2 else "IS+CB") for n in range(columns))
    return Table(
        "t",
        "Accuracy [%]",
        heads,
        (
            Row("Source", (Number(33.5, paper=33.6), *(Number(20.0 + n) for n in range(1, columns - 1)), None)),
            Row(
                "Ent-W+DELTA",
                tuple(
                    Number(68.9, 0.2, n == 0, 13.1 if n else -0.3, 68.5, 0.03, 2 + (n > 0), 3) for n in range(columns)
                ),
            ),
        ),
        "A note.",
    )


def shown(value, width=100, colour=False):
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(rich_table(value))
    return console.file.getvalue()


def words(text):
    return [line.split() for line in text.splitlines() if line.strip()]


def test_it_says_what_the_table_says():
    lines = words(shown(table()))
    assert set(lines.pop(3)[0]) == {"─"}
    assert lines[:8] == [
        ["Accuracy", "[%]"],
        ["IS+CB", "DS+CB"],
        ["Method", "ρ=0", "ρ=1"],
        ["Source", "33.5"],
        ["paper", "33.6", "−0.1"],
        ["Ent-W+DELTA", "68.9", "±.20*", "68.9", "±.20"],
        ["−0.3", "+13.1"],
        ["paper", "68.5", "+0.4", "68.5", "+0.4"],
    ]
    below = " ".join(word for line in lines[8:] for word in line)
    assert below == "* not final, some runs are still missing (done: 2 of 3) A note."


def test_best_is_bold_gains_are_green_losses_red_and_the_paper_dim():
    text = shown(table(), colour=True)
    assert "\x1b[1m68.9\x1b[0m ±.20*" in text
    assert text.count("\x1b[1m68.9") == 1
    assert re.search(r"\x1b\[31m *−0\.3", text)
    assert re.search(r"\x1b\[32m *\+13\.1", text)
    assert re.search(r"\x1b\[2m *68\.5 \+0\.4", text)


def test_eight_columns_fit_into_a_hundred_characters():
    lines = shown(table(8)).splitlines()
    assert max(map(len, lines)) <= 100
    (ours,) = [line for line in lines if "Ent-W+DELTA" in line]
    assert ours.split() == ["Ent-W+DELTA", "68.9", "±.20*", *["68.9", "±.20"] * 7]


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_torn(width):
    text = shown(table(8), width)
    assert text.count("68.9") == 8
    assert text.count("±.20") == 8
    assert "…" not in text


def test_groups_stand_above_the_labels():
    groups, labels = (next(line for line in shown(table()).splitlines() if word in line) for word in ("IS+CB", "ρ=0"))
    assert groups.index("IS+CB") + len("IS+CB") == labels.index("ρ=0") + len("ρ=0")
    assert groups.index("DS+CB") + len("DS+CB") == labels.index("ρ=1") + len("ρ=1")


def test_names_are_not_taken_for_markup():
    odd = dataclasses.replace(table(), rows=(Row("[red]a[/] [b", (None, None)),), head="[dim]", note="[/x]")
    text = shown(odd)
    assert "[red]a[/] [b" in text
    assert "[dim]" in text
    assert "[/x]" in text


def test_without_paper_and_gains_a_row_is_a_line():
    rows = tuple(Row(name, (Number(1.0), Number(2.0))) for name in "abc")
    lines = shown(dataclasses.replace(table(), rows=rows, note="")).splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["a", "b", "c"]
