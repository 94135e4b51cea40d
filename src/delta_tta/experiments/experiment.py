"""Experiments as values: what is to be run, cell by cell, from Python, the command line or a TOML file."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from .. import recipe
from ..corruptions.constants import TYPES, VALIDATION
from ..data.sources import how_to_get
from ..errors import InputError, SettingError, nearest
from ..normalization import Normalisation
from ..registry import COMPONENTS
from ..settings import Settings, make_settings, settings_of, used_by
from ..streams import StreamSpec

CLEAN = "none"
FAMILIES = ("gaussian_noise", "motion_blur", "fog", "jpeg_compression")
"""One corruption of each: noise, blur, weather, digital."""
GROUPS: Mapping[str, tuple[str, ...]] = {"all": TYPES, "families": FAMILIES, "validation": VALIDATION}
"""Names that stand for several corruptions."""
SCENARIOS: tuple[StreamSpec, ...] = (
    StreamSpec("IS+CB"),
    StreamSpec("DS+CB", rho=0.1),
    StreamSpec("IS+CI", pi=0.05),
    StreamSpec("DS+CI", rho=0.5, pi=0.05),
)
"""The paper's four test scenarios."""

Kind = Literal["demo", "cifar", "cifar-c", "imagenet-c", "imagenet-r", "folder", "video"]
Order = Literal["each", "continual", "mixed"]
USUAL: Mapping[Kind, str | None] = {
    "demo": "cifar10-c", "cifar": "cifar100-c", "cifar-c": "cifar100-c", "imagenet-c": "imagenet-c",
    "imagenet-r": "imagenet-r", "video": "ytbb-sub", "folder": None,
}  # fmt: skip
"""The preset that goes with a kind of data."""


@dataclass(frozen=True)
class Place:
    """On what an experiment runs: images and a model.

    Attributes:
        data: "demo" (the embedded images); "cifar" and "folder", clean images that are corrupted on the fly; "cifar-c"
            and "imagenet-c", corrupted ones; "imagenet-r"; "video", a manifest of frames.
        path: where the images are.
        model: see `delta_tta.models.load`.
        weights: likewise.
        preset: the paper's settings for a data set; "auto" takes those that go with the data.
        images: only so many of the images, as many of each class; None for all.
        clean: where clean images are, for "cifar-c" and "imagenet-c", whose own are all corrupted.
        mean: of the input channels, 0 to 1, where the model does not say how it wants its inputs; with `std`.
        std: likewise.
    """

    data: Kind = "demo"
    path: str | None = None
    model: str = "resnet20-cifar10"
    weights: str | None = None
    preset: str | None = "auto"
    images: int | None = None
    clean: str | None = None
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("path", "model", "weights", "clean"):
            if "\0" in str(getattr(self, name)):
                raise SettingError(f"Expected `{name}` to be a name or a path, but got {getattr(self, name)!r}.")
        self._take_scale()
        if self.data not in get_args(Kind):
            raise SettingError(f"Unknown data {self.data!r}.{nearest(str(self.data), get_args(Kind))}")
        if self.preset == "auto":
            object.__setattr__(self, "preset", USUAL[self.data])
        if (self.path is None) != (self.data == "demo"):
            raise SettingError(
                f"Expected no `path` for the embedded images; say what is at {self.path} with `data`, such as 'cifar'."
                if self.path
                else f"Expected `path`, where the data {self.data!r} is, but there is none. {how_to_get(self.data)}"
            )
        if self.clean is not None and self.data not in ("cifar-c", "imagenet-c"):
            raise SettingError(f"Expected `clean` for 'cifar-c' and 'imagenet-c' alone, but the data is {self.data!r}.")
        if self.images is not None and (not isinstance(self.images, int) or self.images < 1):
            raise SettingError(f"Expected `images` to be an integer of at least 1, but got {self.images!r}.")

    def _take_scale(self) -> None:
        """Check `mean` and `std`, which may come as lists, from a file."""
        if (self.mean is None) != (self.std is None):
            raise SettingError("Expected both `mean` and `std` of the input channels, or neither.")
        if self.mean is None or self.std is None:
            return
        try:
            scale = Normalisation(self.mean, self.std)
        except (InputError, TypeError, ValueError):
            raise SettingError(
                f"Expected three numbers as `mean` and three above 0 as `std`, but got {self.mean!r} and {self.std!r}."
            ) from None
        object.__setattr__(self, "mean", scale.mean)
        object.__setattr__(self, "std", scale.std)


@dataclass(frozen=True)
class Cell:
    """One run: a method over one stream. What it is called and where the files lie does not change its result.

    Attributes:
        place: images and model.
        method: in the paper's notation.
        stream: the order of arrival, with its seed.
        corruptions: one, or several that come one after another ("continual") or all at once ("mixed") without a reset.
        order: which; "each" for one.
        severity: of the corruptions, 1 to 5.
        batch_size: images at a time.
        settings: over the preset's, in the order of their names; those that the method does not use are left out.
        statistics: whether the statistics of a layer are kept in the trace.
        samples: only so many of the stream, from its beginning; None for all.
        passes: how many times the stream is met, without a reset.
    """

    place: Place
    method: str
    stream: StreamSpec
    corruptions: tuple[str, ...] = ("motion_blur",)
    order: Order = "each"
    severity: int = 5
    batch_size: int = 64
    settings: tuple[tuple[str, Any], ...] = ()
    statistics: bool = False
    samples: int | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.passes, int) or self.passes < 1:
            raise SettingError(f"Expected `passes` to be an integer of at least 1, but got {self.passes!r}.")
        if self.samples is not None and (not isinstance(self.samples, int) or self.samples < 1):
            raise SettingError(f"Expected `samples` to be an integer of at least 1, but got {self.samples!r}.")
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in dict(self.settings).items()}
        object.__setattr__(self, "settings", _used(self.method, given))
        object.__setattr__(self, "method", self._understood[0])
        for name in self.corruptions:
            if name not in (*TYPES, *VALIDATION, CLEAN):
                raise SettingError(f"Unknown corruption {name!r}.{nearest(name, (*TYPES, *VALIDATION, CLEAN))}")
        if self.severity not in range(1, 6):
            raise SettingError(f"Expected `severity` to be an integer from 1 to 5, but got {self.severity!r}.")
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise SettingError(f"Expected `batch_size` to be an integer of at least 1, but got {self.batch_size!r}.")
        fine = len(self.corruptions) == 1 if self.order == "each" else len(self.corruptions) > 1
        if self.order not in get_args(Order) or not fine:
            raise SettingError(
                f"Expected one corruption for the order 'each' and several for 'continual' or 'mixed', but got "
                f"{len(self.corruptions)} and {self.order!r}."
            )

    def __str__(self) -> str:
        what = f"{self.corruptions[0]} {self.severity}" if self.order == "each" else self.order
        extra = f", {self.in_words}" if self.settings else ""
        extra += f", first {self.samples} samples" if self.samples else ""
        extra += f", {self.passes} passes" if self.passes > 1 else ""
        return f"{self.method} on {what}, {self.stream}, B={self.batch_size}{extra}"

    @property
    def in_words(self) -> str:
        """The settings that were given."""
        return ", ".join(f"{name}={value}" for name, value in self.settings)

    @property
    def spelled_out(self) -> Settings:
        """The settings, with the preset's and the method's own."""
        return self._understood[1]

    @property
    def _understood(self) -> tuple[str, Settings]:
        # with their spelling, as 1 and True are equal, but a setting may be the one and not the other
        return _understood(self.method, self.place.preset, self.settings, repr(self.settings))

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {**dataclasses.asdict(self), "stream": str(self.stream), "settings": dict(self.settings)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cell:
        """Read what `as_dict` wrote."""
        own = {
            **values,
            "place": Place(**values["place"]),
            "stream": StreamSpec.parse(values["stream"]),
            "corruptions": tuple(values["corruptions"]),
            "settings": tuple(values["settings"].items()),
        }
        return cls(**own)


PLAIN = tuple(one.name for one in dataclasses.fields(Settings))


def _used(method: str, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the settings that a method uses."""
    classes = recipe.parse(method).classes
    used = used_by(classes)
    foreign = {name for one in COMPONENTS.values() for name in settings_of(one.build)} - set(PLAIN) - used
    # a wrong value is refused even where it is not used
    make_settings(None, {name: value for name, value in given.items() if name not in foreign}, classes)
    return tuple(sorted((name, value) for name, value in given.items() if name in used))


@functools.lru_cache(maxsize=10_000)
def _understood(
    method: str, preset: str | None, settings: tuple[tuple[str, Any], ...], spelling: str
) -> tuple[str, Settings]:
    """Return the method in its shortest form and all its settings; remembered, as plans ask thousands of times."""
    parsed = recipe.parse(method)
    return str(parsed), make_settings(preset, dict(settings), parsed.classes)


@dataclass(frozen=True)
class Experiment:
    """Methods × scenarios × corruptions × severities × batch sizes × seeds on one place.

    `reset` "each shift" starts every corruption from the source; "never" goes on from one to the next.
    """

    methods: tuple[str, ...]
    place: Place = field(default_factory=Place)
    scenarios: tuple[StreamSpec, ...] = SCENARIOS
    corruptions: tuple[str, ...] = ("motion_blur",)
    severities: tuple[int, ...] = (5,)
    batch_sizes: tuple[int, ...] = (64,)
    seeds: tuple[int, ...] = (2020,)
    reset: Literal["each shift", "never"] = "each shift"
    settings: Mapping[str, Any] = field(default_factory=dict)
    statistics: bool = False
    samples: int | None = None
    passes: int = 1

    def cells(self) -> list[Cell]:
        """Return the cells, those on the same images next to each other; wrong values are refused here."""
        if self.reset not in ("each shift", "never"):
            raise SettingError(f"Expected `reset` to be 'each shift' or 'never', but got {self.reset!r}.")
        names = tuple(itertools.chain.from_iterable(GROUPS.get(name, (name,)) for name in self.corruptions))
        for what in ("methods", "scenarios", "corruptions", "severities", "batch_sizes", "seeds"):
            if not getattr(self, what):
                raise SettingError(f"Expected at least one of the {what}, but there is none.")
        for name in self.settings:
            if not any(name in dict(_used(method, self.settings)) for method in self.methods):
                recipe.require_used(recipe.parse(self.methods[0]), [name])
        together = self.reset == "never" and len(names) > 1
        axes = itertools.product(
            [names] if together else [(name,) for name in names],
            self.severities,
            self.seeds,
            self.scenarios,
            self.batch_sizes,
            self.methods,
        )
        cells = [
            Cell(
                self.place,
                method,
                dataclasses.replace(scenario, seed=seed),
                corruption,
                "continual" if together else "each",
                severity,
                batch_size,
                tuple(self.settings.items()),
                self.statistics,
                self.samples,
                self.passes,
            )
            for corruption, severity, seed, scenario, batch_size, method in axes
        ]
        return list(dict.fromkeys(cells))


def from_mapping(values: Mapping[str, Any], root: Path | None = None) -> Experiment:
    """Return the experiment that a TOML file or a command line describes; unknown keys are errors.

    Args:
        values: the fields of `Place` and `Experiment`, all on one level; `settings` is a table of its own. Scenarios
            are texts such as "DS+CB (rho=0.1)".
        root: relative paths start here.
    """
    places = [one.name for one in dataclasses.fields(Place)]
    others = [one.name for one in dataclasses.fields(Experiment) if one.name != "place"]
    for name in values:
        if name not in (*places, *others):
            raise SettingError(f"Unknown key {name!r}.{nearest(name, (*places, *others))}")
    if not values.get("methods"):
        raise SettingError(
            "Expected `methods`, such as ['tent', 'tent+delta'], but there is none. On the command line: -m tent -m "
            "tent+delta; `delta-tta methods` lists them."
        )
    given = {name: _listed(name, values[name]) for name in others if name in values}
    if "scenarios" in given:
        given["scenarios"] = scenarios(given["scenarios"])
    place = {name: values[name] for name in places if name in values}
    kinds = {
        **dict.fromkeys((name for name in place if name not in ("mean", "std")), str),
        "images": int,
        "samples": int,
        "passes": int,
        "statistics": bool,
        "settings": dict,
    }
    for name, kind in kinds.items():
        value = values.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise SettingError(f"Expected `{name}` to be of type {kind.__name__}, but got {value!r}.")
    for name in ("mean", "std"):
        if isinstance(values.get(name), str):
            raise SettingError(f"Expected `{name}` to be three numbers, but got {values[name]!r}.")
    nested = [name for name, value in given.get("settings", {}).items() if isinstance(value, dict)]
    if nested:
        raise SettingError(f"Expected the setting `{nested[0]}` to be a number or a text, but got a table.")
    return Experiment(place=Place(**(place if root is None else _from(root, place))), **given)


def _from(root: Path, place: Mapping[str, Any]) -> dict[str, Any]:
    """Return the place with its files sought from `root`; weights may also be the name of published ones."""
    found = dict(place)
    for name in ("path", "clean"):
        if name in found:
            found[name] = str(root / found[name])
    if (root / found.get("weights", "")).is_file():
        found["weights"] = str(root / found["weights"])
    file, colon, factory = found.get("model", "").rpartition(":")
    if colon and file.endswith(".py"):
        found["model"] = f"{root / file}:{factory}"
    return found


def scenarios(texts: Sequence[str]) -> tuple[StreamSpec, ...]:
    """Read scenarios such as "DS+CB (rho=0.1)"; their seeds are given apart."""
    for text in texts:
        if "seed" in text:
            raise SettingError(f"Expected a scenario without its seed, but got {text!r}; give the seeds as `seeds`.")
    return tuple(map(StreamSpec.parse, texts))


def from_toml(path: Path) -> Experiment:
    """Read an experiment; paths in it are relative to the file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError:
        raise InputError(f"Expected an experiment (TOML) at {path}, but there is none.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not readable as TOML: {error}.") from None
    return from_mapping(values, path.parent)


def _listed(name: str, value: Any) -> Any:
    """Return lists as tuples; a single value where several are possible is a list of one."""
    kinds = {"methods": str, "scenarios": str, "corruptions": str, "severities": int, "batch_sizes": int, "seeds": int}
    if name not in kinds:
        return value
    values: Sequence[Any] = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    wrong = [one for one in values if not isinstance(one, kinds[name]) or isinstance(one, bool)]
    if wrong:
        raise SettingError(f"Expected `{name}` to be a list of {kinds[name].__name__}, but got {wrong[0]!r}.")
    return tuple(values)
