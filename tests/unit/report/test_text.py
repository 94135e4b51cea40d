"""Tables as Markdown, CSV and LaTeX."""

import csv as csv_module
import dataclasses
import io
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.report.shown import Column, Number, Row, Table
from delta_tta.report.text import FIELDS, csv, latex, markdown, missing, plain, signed

COMPONENTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
"""No NUL: Python 3.10 cannot read it back."""

TABLE = Table(
    id="table 2",
    title="Accuracy, 50% off",
    columns=(Column("ρ=1.0", "DS+CB"), Column("ρ=0.1", "DS+CB"), Column("mean")),
    rows=(
        Row("Source", (Number(33.5), None, Number(30.04, paper=30.1))),
        Row("TENT", (Number(60.25, 0.123), Number(20.0, 1.0, runs=2, of=3), Number(40.0, 0.5))),
        Row(
            "TENT+DELTA",
            (
                Number(68.9, 0.2, best=True, gain=8.65, paper=68.5, paper_std=0.03),
                Number(68.6, 0.2, best=True, gain=None),
                Number(39.7, 0.2, gain=-0.3),
            ),
        ),
    ),
    note="Mean ± std over 3 seeds.",
)


def with_names(row, column, group="", title="t", note=""):
    return Table("x", title, (Column(column, group), Column("other")), (Row(row, (Number(1.0), None)),), note)


def md_lines(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def md_cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tex_rows(text):
    inner = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    return [line.strip() for line in inner.splitlines() if line.rstrip().endswith(r"\\")]


def tex_width(row):
    spans = [int(n) for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
    return len(re.findall(r"(?<!\\)&", row)) + 1 + sum(spans) - len(spans)


def tex_depth(text):
    """Return how many braces are open at the end; fails where one is closed that is not open."""
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        assert depth >= 0
    return depth


def test_plain_and_signed_have_a_true_minus_and_no_negative_nothing():
    assert (plain(-1.25, 2), plain(-0.04, 1), plain(3.0, 0)) == ("−1.25", "0.0", "3")
    assert (signed(13.14, 1), signed(-0.3, 1), signed(-0.04, 1)) == ("+13.1", "−0.3", "+0.0")


def test_markdown_is_as_the_paper_prints_it():
    assert markdown(TABLE).splitlines() == [
        "**Accuracy, 50% off**",
        "",
        "| Method | DS+CB: ρ=1.0 | DS+CB: ρ=0.1 | mean |",
        "| --- | ---: | ---: | ---: |",
        "| Source | 33.5 |  | 30.0<br><sub>paper 30.1 (−0.1)</sub> |",
        "| TENT | 60.2 ±0.12 | 20.0 ±1.00 * | 40.0 ±0.50 |",
        "| TENT+DELTA | **68.9** ±0.20<br><sub>paper 68.5 ±0.03 (+0.4)</sub> | **68.6** ±0.20 | 39.7 ±0.20 |",
        "|  | +8.7 |  | −0.3 |",
        "",
        r"\* not final, some runs are still missing (done: 2 of 3).",
        "",
        "Mean ± std over 3 seeds.",
    ]


def test_markdown_puts_a_group_that_all_share_into_the_title():
    table = dataclasses.replace(TABLE, columns=tuple(Column(c.label, "IS+CB") for c in TABLE.columns))
    lines = markdown(table).splitlines()
    assert lines[0] == "**Accuracy, 50% off** — IS+CB"
    assert md_cells(lines[2]) == ["Method", "ρ=1.0", "ρ=0.1", "mean"]


def test_nothing_is_said_about_runs_when_all_are_there():
    table = dataclasses.replace(TABLE, rows=(TABLE.rows[0], TABLE.rows[2]))
    assert missing(table) == ""
    assert "not final" not in markdown(table) + latex(table)
    assert not re.search(r"(?<!\*) \*", markdown(table).replace("**", ""))


@given(row=COMPONENTS, column=COMPONENTS, group=COMPONENTS)
def test_markdown_has_as_many_cells_on_every_line(row, column, group):
    lines = md_lines(markdown(with_names(row, column, group)))
    assert {len(md_cells(line)) for line in lines} == {3}


def test_markdown_escapes_what_would_be_a_column_or_emphasis():
    assert md_cells(md_lines(markdown(with_names("a|b", "*c* <d>")))[0])[1] == r"\*c\* \<d>"
    assert md_cells(md_lines(markdown(with_names("a|b", "c")))[2])[0] == r"a\|b"


@pytest.mark.parametrize("digits", [0, 2])
def test_digits_are_the_table_s(digits):
    table = dataclasses.replace(TABLE, digits=digits)
    mean, std = ("60.25", "0.123") if digits else ("60", "0.1")
    assert f"| TENT | {mean} ±{std} |" in markdown(table)
    assert rf"TENT & {mean}$_{{\pm {std}}}$ &" in latex(table)


def test_csv_has_a_line_for_each_number_unrounded():
    lines = list(csv_module.DictReader(io.StringIO(csv(TABLE), newline="")))
    assert len(lines) == 8
    assert tuple(lines[0]) == FIELDS
    assert lines[2] == {
        **dict.fromkeys(("gain", "paper", "paper_std"), ""),
        "exhibit": "table 2",
        "row": "TENT",
        "group": "DS+CB",
        "column": "ρ=1.0",
        "mean": "60.25",
        "std": "0.123",
        "best": "False",
        "runs": "1",
        "of": "1",
    }
    assert lines[5]["best"] == "True"
    assert (lines[5]["gain"], lines[5]["paper"], lines[5]["paper_std"]) == ("8.65", "68.5", "0.03")
    assert (lines[3]["runs"], lines[3]["of"]) == ("2", "3")
    assert "\r" not in csv(TABLE)


@given(row=COMPONENTS, column=COMPONENTS, group=COMPONENTS, mean=st.floats(allow_nan=False, allow_infinity=False))
def test_csv_gives_names_and_numbers_back(row, column, group, mean):
    table = Table("x", "t", (Column(column, group),), (Row(row, (Number(mean),)),))
    (line,) = csv_module.DictReader(io.StringIO(csv(table), newline=""))
    assert (line["row"], line["column"], line["group"], float(line["mean"])) == (row, column, group, mean)


def test_latex_has_groups_gains_and_the_paper_s_numbers():
    rows = tex_rows(latex(TABLE))
    assert rows[0] == r"& \multicolumn{2}{c}{DS+CB} & \multicolumn{1}{c}{} \\"
    assert r"\cmidrule(lr){2-3}" in latex(TABLE)
    assert rows[1] == r"Method & $\rho$=1.0 & $\rho$=0.1 & mean \\"
    assert rows[2] == r"Source & 33.5 &  & 30.0 \\"
    assert (
        rows[3] == r"\textcolor{black!60}{\scriptsize paper} &  &  & \textcolor{black!60}{\scriptsize 30.1$^{-0.1}$} \\"
    )
    assert rows[4] == r"TENT & 60.2$_{\pm 0.12}$ & 20.0$_{\pm 1.00}$$^{*}$ & 40.0$_{\pm 0.50}$ \\"
    assert rows[5].startswith(r"TENT+DELTA & \textbf{68.9}$_{\pm 0.20}$ & \textbf{68.6}$_{\pm 0.20}$ & 39.7")
    assert rows[6] == r"& +8.7 &  & $-$0.3 \\"
    assert r"68.5$_{\pm 0.03}^{+0.4}$" in rows[7]
    assert latex(TABLE).count(r"\textbf") == 2
    assert r"\caption{Accuracy, 50\% off}" in latex(TABLE)
    assert r"\label{tab:table-2}" in latex(TABLE)
    assert "done: 2 of 3" in latex(TABLE)


def test_latex_without_groups_has_one_line_of_heads():
    text = latex(with_names("a", "b"))
    assert "multicolumn" not in text
    assert "cmidrule" not in text
    assert len(tex_rows(text)) == 2


@given(row=COMPONENTS, column=COMPONENTS, group=COMPONENTS, title=COMPONENTS)
def test_latex_is_balanced_whatever_the_names(row, column, group, title):
    text = latex(with_names(row, column, group, title, note=row))
    assert tex_depth(text) == 0
    assert {tex_width(line) for line in tex_rows(text)} == {3}
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def test_latex_escapes():
    names = latex(with_names("a_b & 50% #1 $x ±λ", "[c] *d* {e} \\f ~^<"))
    assert r"a\_b \& 50\% \#1 \$x $\pm$$\lambda$" in names
    assert r"{[}c{]} {*}d{*} \{e\} \textbackslash{}f \textasciitilde{}\textasciicircum{}$<$" in names


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path):
    odd = with_names("[a_b & 50% #1 $x ±λ", "* ~^<|> {e} \\f", "π→∞ ≤", "α, ρ, π & λ", "100 % · 2×3")
    pages = [
        latex(dataclasses.replace(TABLE, id="a")),
        latex(odd),
        latex(Table("c", "", (), (Row("nothing", ()),))),
    ]
    packages = r"\documentclass{article}\usepackage{booktabs}\usepackage{xcolor}"
    document = "\n".join([packages, r"\begin{document}", *pages, r"\end{document}"])
    (tmp_path / "all.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert b"Overfull" not in done.stdout


def test_a_row_that_does_not_fit_the_head_is_refused():
    table = dataclasses.replace(TABLE, rows=(Row("short", (Number(1.0),)),))
    for render in (markdown, csv, latex):
        with pytest.raises(ValueError, match="zip"):
            render(table)
