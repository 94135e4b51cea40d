"""Tables as text: Markdown for GitHub, CSV for other programs, LaTeX for papers."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from csv import writer
from itertools import groupby

from .shown import Column, Number, Row, Table

FIELDS = ("exhibit", "row", "group", "column", "mean", "std", "best", "gain", "paper", "paper_std", "runs", "of")
"""The head of the CSV."""

_LETTERS = {
    **dict(
        zip(
            "αβγδεζηθικλμ",
            ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu"],
            strict=True,
        )
    ),
    **dict(
        zip(
            "νξπρστυφχψω",
            ["nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega"],
            strict=True,
        )
    ),
    **dict(
        zip(
            "ΓΔΘΛΞΠΣΦΨΩ", ["Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega"], strict=True
        )
    ),
    "±": "pm",
    "×": "times",
    "·": "cdot",
    "→": "to",
    "≤": "leq",
    "≥": "geq",
    "≈": "approx",
    "∞": "infty",
}
_TEX = str.maketrans(
    {
        **{letter: rf"$\{name}$" for letter, name in _LETTERS.items()},
        **{sign: rf"\{sign}" for sign in "%_&#${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "−": "$-$",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        **{sign: f"{{{sign}}}" for sign in "[]*"},  # at the start of a row it would belong to the \\ before it
    }
)


def plain(value: float, digits: int) -> str:
    """Return a number with a true minus sign; what rounds to nothing has none."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("-")


def signed(points: float, digits: int) -> str:
    """Return a difference with its sign: +13.1, −0.3."""
    text = plain(points, digits)
    return text if text.startswith("−") else f"+{text}"


def spread(std: float | None, digits: int) -> str:
    """Return ±0.20, one digit more than the mean has; nothing where there is no std."""
    return "" if std is None else f"±{plain(std, digits + 1)}"


def gains(row: Row, digits: int) -> list[str] | None:
    """Return the line below a row: what each number gains; None where none of them builds on another."""
    if all(number is None or number.gain is None for number in row.numbers):
        return None
    return ["" if n is None or n.gain is None else signed(n.gain, digits) for n in row.numbers]


def arrow(points: float, digits: int) -> str:
    """Return ▲ or ▼ and the points; = where they round to nothing."""
    text = plain(abs(points), digits)
    return f"{'▲' if points > 0 else '▼'}{text}" if float(text) else "="


def unfinished(number: Number) -> bool:
    """Return whether runs are still missing."""
    return number.runs < number.of


def missing(table: Table) -> str:
    """Return what the star at a number means; empty where all runs are there."""
    counts = {(n.runs, n.of) for row in table.rows for n in row.numbers if n is not None and unfinished(n)}
    done = ", ".join(f"{runs} of {of}" for runs, of in sorted(counts))
    return f"not final, some runs are still missing (done: {done})" if done else ""


def common_group(columns: Sequence[Column]) -> str:
    """Return the group that all columns are in; empty where they are in several or in none."""
    groups = {column.group for column in columns}
    return groups.pop() if len(groups) == 1 else ""


def markdown(table: Table, arrows: bool = False) -> str:
    """Return the table for GitHub, its title above and its note below; gains in a line below or as arrows beside."""
    if not isinstance(table, Table):
        raise TypeError(
            f"Expected a Table, but got {type(table).__name__}; `delta_tta.report.overview.overview` makes one of "
            "results."
        )
    shared = common_group(table.columns)
    heads = [f"{c.group}: {c.label}" if c.group and not shared else c.label for c in table.columns]
    top = "| " + " | ".join(_md(head) for head in (table.head, *heads)).lstrip() + " |"
    lines = [top, _piped(["---", *["---:"] * len(heads)])]
    for row in table.rows:
        lines.append(_piped([_md(row.label), *_cells(table, row, _md_cell_and_arrow if arrows else _md_cell)]))
        points = None if arrows else gains(row, table.digits)
        if points:
            lines.append(_piped(["", *points]))
    title = (f"**{_md(table.title)}**" if table.title else "") + (f" — {_md(shared)}" if shared else "")
    star = missing(table)
    below = [rf"\* {star}." if star else "", _md(table.note)]
    return "\n\n".join(part for part in (title, "\n".join(lines), *below) if part) + "\n"


def csv(table: Table) -> str:
    """Return the table in long form, a line for each number, nothing rounded."""
    lines = [_csv_line(FIELDS)]
    for row in table.rows:
        for column, n in zip(table.columns, row.numbers, strict=True):
            if n is not None:
                names = (table.id, row.label, column.group, column.label)
                theirs = (_exact(n.gain), _exact(n.paper), _exact(n.paper_std))
                lines.append(_csv_line([*names, _exact(n.mean), _exact(n.std), n.best, *theirs, n.runs, n.of]))
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """Return a `table` environment: our numbers, below them what they gain and, in grey, the paper's."""
    width = len(table.columns)
    size = "small" if width <= 6 else "footnotesize" if width <= 9 else "scriptsize"
    body = [r"\toprule", *_tex_groups(table.columns)]
    body += [_ampersands([_tex(head) for head in (table.head, *(c.label for c in table.columns))]), r"\midrule"]
    for number, row in enumerate(table.rows):
        lines = [_ampersands([_tex(row.label), *_cells(table, row, _tex_cell)])]
        points = gains(row, table.digits)
        if points:
            lines.append(_ampersands(["", *map(_tex, points)]))
        if _compared(row):
            lines.append(_ampersands([_grey("paper"), *_cells(table, row, _tex_paper)]))
        if number and len(lines) > 1:
            body.append(r"\addlinespace")  # or one could not see which lines belong together
        body += lines
    grey = "Grey: the paper's numbers; raised: the difference from them." if any(map(_compared, table.rows)) else ""
    star = missing(table)
    below = " ".join(part for part in (f"$^{{*}}$ {_tex(star)}." if star else "", grey, _tex(table.note)) if part)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs} and \usepackage{xcolor}",
            r"\begin{table}[tbp]",
            rf"  \centering\{size}\setlength{{\tabcolsep}}{{{4 if width <= 6 else 2}pt}}",
            rf"  \caption{{{_tex(table.title)}}}",
            rf"  \label{{tab:{re.sub('[^A-Za-z0-9.:-]+', '-', table.id)}}}",
            rf"  \smallskip\begin{{tabular}}{{@{{}}l{'c' * width}@{{}}}}",
            *(f"    {line}" for line in [*body, r"\bottomrule"]),
            r"  \end{tabular}",
            *([rf"  \par\smallskip{{\footnotesize {below}\par}}"] if below else []),
            r"\end{table}",
            "",
        ]
    )


def _cells(table: Table, row: Row, cell: Callable[[Number, int], str]) -> list[str]:
    pairs = zip(table.columns, row.numbers, strict=True)  # a row that is too short would shift all that follows
    return ["" if number is None else cell(number, table.digits) for _, number in pairs]


def _md(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(text.split()))


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md_cell(number: Number, digits: int) -> str:
    mean = plain(number.mean, digits)
    ours = f"**{mean}**" if number.best else mean
    ours = " ".join(part for part in (ours, spread(number.std, digits), "*" if unfinished(number) else "") if part)
    if number.paper is None:
        return ours
    theirs = f"{plain(number.paper, digits)} {spread(number.paper_std, digits)}".strip()
    return f"{ours}<br><sub>paper {theirs} ({signed(number.mean - number.paper, digits)})</sub>"


def _md_cell_and_arrow(number: Number, digits: int) -> str:
    text = _md_cell(number, digits)
    return text if number.gain is None else f"{text} {arrow(number.gain, digits)}"


def _exact(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _csv_line(values: Sequence[object]) -> str:
    file = io.StringIO()
    writer(file).writerow(values)  # ends with \r\n: only so does every Python quote a \r in a label
    return file.getvalue()[:-2]


def _tex(text: str) -> str:
    return " ".join(text.split()).translate(_TEX)


def _ampersands(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _compared(row: Row) -> bool:
    return any(number is not None and number.paper is not None for number in row.numbers)


def _grey(text: str) -> str:
    return rf"\textcolor{{black!60}}{{\scriptsize {text}}}"


def _tex_cell(number: Number, digits: int) -> str:
    mean = _tex(plain(number.mean, digits))
    std = "" if number.std is None else rf"$_{{\pm {number.std:.{digits + 1}f}}}$"
    return (rf"\textbf{{{mean}}}" if number.best else mean) + std + ("$^{*}$" if unfinished(number) else "")


def _tex_paper(number: Number, digits: int) -> str:
    if number.paper is None:
        return ""
    # Above the std and not after it: eight columns are then no wider than a page.
    std = "" if number.paper_std is None else rf"_{{\pm {number.paper_std:.{digits + 1}f}}}"
    difference = signed(number.mean - number.paper, digits).replace("−", "-")
    return _grey(f"{_tex(plain(number.paper, digits))}${std}^{{{difference}}}$")


def _tex_groups(columns: Sequence[Column]) -> list[str]:
    """Return the line of the groups and the rules below them; nothing where no column is in a group."""
    heads, rules, first = [""], [], 2
    for group, members in groupby(columns, key=lambda column: column.group):
        count = len(list(members))
        heads.append(rf"\multicolumn{{{count}}}{{c}}{{{_tex(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{first}-{first + count - 1}}}")
        first += count
    return [_ampersands(heads), " ".join(rules)] if rules else []
