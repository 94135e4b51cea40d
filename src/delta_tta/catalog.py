"""Lists the components, and the methods that can be made of them."""

from __future__ import annotations

import itertools

from .errors import MethodError
from .recipe import ABBREVIATIONS, parse
from .registry import by_kind
from .settings import settings_of

LINES = {
    "delta": "the paper's method: tbr and dot together (DELTA, Zhao et al. 2023)",
}


class Description(str):
    """What a component does, in one line.

    Attributes:
        settings: the names of those that it uses, besides those that every method has.
    """

    settings: tuple[str, ...]

    def __new__(cls, line: str, settings: tuple[str, ...] = ()) -> Description:
        """Keep the settings beside the text."""
        made = super().__new__(cls, line)
        made.settings = settings
        return made


def methods() -> dict[str, Description]:
    """List every component of a method string, with one line and the settings of each; parts begin with "+".

    Examples:
        >>> import delta_tta
        >>> for name, line in delta_tta.methods().items():
        ...     print(f"{name:8} {line}")  # doctest: +ELLIPSIS
        source   the model without adaptation
        ...
        >>> delta_tta.methods()["+dot"].settings
        ('lam', 'dot')
    """
    said = {one.name: Description(one.line, settings_of(one.build)) for one in by_kind()}
    alone = {one.name: said[one.name] for one in by_kind() if one.alone}
    parts = {f"+{one.name}": said[one.name] for one in by_kind() if one.part}
    short = {
        f"+{name}": Description(LINES[name], tuple(dict.fromkeys(s for part in long for s in said[part].settings)))
        for name, long in ABBREVIATIONS.items()
    }
    return {**alone, **parts, **short}


def all_methods() -> list[str]:
    """List every method that can be written for a model with batch norms, in its shortest form."""
    starts = [w.name for w in by_kind() if w.alone]
    parts = [w for w in by_kind() if w.part]
    kinds = [[None, *(w.name for w in parts if w.kind == kind)] for kind in dict.fromkeys(w.kind for w in parts)]
    choices = [[name for name in chosen if name is not None] for chosen in itertools.product(*kinds)]
    found: dict[str, None] = {}
    for start, chosen in itertools.product(starts, sorted(choices, key=len)):
        try:
            recipe = parse("+".join([start, *chosen]))
        except MethodError:
            continue
        if not recipe.splits_batches:
            found[str(recipe)] = None
    return list(found)
