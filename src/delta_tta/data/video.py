"""Video: frames in the order they were filmed, listed in a CSV manifest."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError, nearest
from .sets import MOST_CLASSES, FileSet
from .sources import how_to_get
from .ytbb import YOUTUBE_BB_CLASSES, known

COLUMNS = ("path", "label", "video", "time")
YTBB_CLASSES = 21
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
"""A label that is meant as a number, such as 3, or 3.0 where pandas saw a gap in the column."""

Row = dict[str, str]
"""By column; `line` says where it stands."""


class VideoSet(FileSet):
    """Frames of videos, in the order of arrival; `videos` names the video of each."""

    videos: tuple[str, ...]


def video(
    manifest: str | Path, classes: Sequence[str] | None = None, size: int = 224, resize: int | None = None
) -> VideoSet:
    """Return the frames of a CSV manifest with the columns path, label, video, time.

    Videos come in the order of their first line, frames of a video by time: take them with the scenario "natural".

    Args:
        manifest: the CSV file; its paths are relative to its folder and may not leave it.
        classes: names of the classes in the order of the model's outputs; without them labels that are all integers
            (3, 3.0 and " 3" are the same) are kept, and names numbered in alphabetical order.
        size: see `FileSet`.
        resize: see `FileSet`.
    """
    place = Path(manifest)
    rows = _rows(place)
    root = place.parent.resolve()
    first = {row["video"]: number for number, row in reversed(list(enumerate(rows)))}
    rows = sorted(rows, key=lambda row: (first[row["video"]], float(row["time"])))
    paths = [_below(root, row, place) for row in rows]
    numbers, names = _numbered(rows, place) if classes is None else (_among(classes, rows, place), classes)
    found = VideoSet(place.stem, paths, np.array(numbers), names, size=size, resize=resize)
    found.videos = tuple(row["video"] for row in rows)
    return found


def ytbb_sub(manifest: str | Path, classes: Sequence[str] | None = None) -> VideoSet:
    """Return YTBB-sub, the paper's video stream of 21 classes, from a manifest of its frames (see `video`).

    Which 21 of the 23 classes of YouTube-BoundingBoxes they are is not published: the manifest, or `classes`, says so.
    """
    found = video(manifest, classes)
    if len(found.classes) != YTBB_CLASSES:
        raise DataError(f"{manifest}: expected the {YTBB_CLASSES} classes of YTBB-sub, but got {len(found.classes)}.")
    other = next((name for name in found.classes if not name.isdecimal() and not known(name)), None)
    if other is not None:
        hint = nearest(other, YOUTUBE_BB_CLASSES)
        raise DataError(f"{manifest}: expected classes of YouTube-BoundingBoxes, but got {other!r}.{hint}")
    found.name = "YTBB-sub"
    return found


def _below(root: Path, row: Row, place: Path) -> Path:
    try:
        path = (root / row["path"]).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a link to itself
        raise DataError(
            f"{place}, line {row['line']}: expected the path of an image, but got {row['path']!r} ({error})."
        ) from None
    if not path.is_relative_to(root):
        raise DataError(f"{place}, line {row['line']}: expected paths below {root}, but got {path}.")
    return path


def _among(classes: Sequence[str], rows: Sequence[Row], place: Path) -> list[int]:
    """Return the place of each label among the classes."""
    number = {label: i for i, label in enumerate(classes)}
    found = []
    for row in rows:
        label = row["label"]
        if label not in number and NUMBER.fullmatch(label) and float(label).is_integer():
            label = f"{float(label):.0f}"  # 3.0 where the class is called 3
        if label not in number:
            raise DataError(
                f"{place}, line {row['line']}: expected labels among the {len(classes)} classes, but got {label}."
            )
        found.append(number[label])
    return found


def _numbered(rows: Sequence[Row], place: Path) -> tuple[list[int], list[str]]:
    """Return the number of each label, and the names of the classes: integers unchanged, else by alphabet."""
    names = [row for row in rows if not NUMBER.fullmatch(row["label"])]
    if len(names) == len(rows):
        classes = sorted({row["label"] for row in rows})
        return _among(classes, rows, place), classes
    if names:
        other = next(row for row in rows if NUMBER.fullmatch(row["label"]))
        raise DataError(
            f"{place}, line {names[0]['line']}: expected labels that are all integers or all names, but got "
            f"{names[0]['label']!r}, and {other['label']!r} in line {other['line']}."
        )
    for row in rows:
        value = float(row["label"])
        if not 0 <= value < MOST_CLASSES or not value.is_integer():
            raise DataError(
                f"{place}, line {row['line']}: expected an integer from 0 to {MOST_CLASSES - 1:,} as label, but got "
                f"{row['label']}."
            )
    numbers = [int(float(row["label"])) for row in rows]
    return numbers, [str(i) for i in range(max(numbers) + 1)]


def _rows(place: Path) -> list[Row]:
    try:
        with place.open(newline="", encoding="utf-8-sig") as file:  # Excel begins with a byte-order mark
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            rows = [{**row, "line": str(reader.line_num)} for row in reader]
    except FileNotFoundError:
        raise DataError(f"Expected a CSV manifest at {place}, but there is none. {how_to_get('video')}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{place} is not a readable CSV manifest: {error}.") from None
    if missing:
        raise DataError(f"{place}: expected the columns {', '.join(COLUMNS)}, but {', '.join(missing)} is missing.")
    if not rows:
        raise DataError(f"{place} lists no images.")
    for row in rows:
        where = f"{place}, line {row['line']}"
        if any(row[name] is None for name in COLUMNS):
            raise DataError(f"{where}: expected {', '.join(COLUMNS)}, but the line is shorter.")
        row["label"] = row["label"].strip()
        if not row["label"]:
            raise DataError(f"{where}: expected a label, but it is empty.")
        if not _finite(row["time"]):
            raise DataError(f"{where}: expected a number as time, but got {row['time']!r}.")
    return rows


def _finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
