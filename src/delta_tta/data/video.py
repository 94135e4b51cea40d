"""Video: frames in the order they were filmed, listed in a CSV manifest."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError, nearest
from .sets import FileSet
from .sources import how_to_get
from .ytbb import YOUTUBE_BB_CLASSES, known

COLUMNS = ("path", "label", "video", "time")
YTBB_CLASSES = 21


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
            are taken as they are, and names in alphabetical order.
        size: see `FileSet`.
        resize: see `FileSet`.
    """
    place = Path(manifest)
    rows = _rows(place)
    root = place.parent.resolve()
    first = {row["video"]: number for number, row in reversed(list(enumerate(rows)))}
    rows = sorted(rows, key=lambda row: (first[row["video"]], float(row["time"])))
    paths = [(root / row["path"]).resolve() for row in rows]
    outside = [path for path in paths if not path.is_relative_to(root)]
    if outside:
        raise DataError(f"{place}: expected paths below {root}, but got {outside[0]}.")
    labels = [row["label"] for row in rows]
    if classes is None:
        numbers = all(label.isdecimal() for label in labels)
        count = max(map(int, labels)) + 1 if numbers else 0
        classes = [str(i) for i in range(count)] if numbers else sorted(set(labels))
    number = {label: i for i, label in enumerate(classes)}
    unknown = sorted(set(labels) - set(number))
    if unknown:
        raise DataError(f"{place}: expected labels among the {len(classes)} classes, but got {', '.join(unknown[:5])}.")
    found = VideoSet(place.stem, paths, np.array([number[label] for label in labels]), classes, size, resize)
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


def _rows(place: Path) -> list[dict[str, str]]:
    try:
        with place.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            rows = list(reader)
    except FileNotFoundError:
        raise DataError(f"Expected a CSV manifest at {place}, but there is none. {how_to_get('video')}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{place} is not a readable CSV manifest: {error}.") from None
    if missing:
        raise DataError(f"{place}: expected the columns {', '.join(COLUMNS)}, but {', '.join(missing)} is missing.")
    if not rows:
        raise DataError(f"{place} lists no images.")
    for number, row in enumerate(rows, start=2):
        if any(row[name] is None for name in COLUMNS):
            raise DataError(f"{place}, line {number}: expected {', '.join(COLUMNS)}, but the line is shorter.")
        try:
            float(row["time"])
        except (TypeError, ValueError):
            raise DataError(f"{place}, line {number}: expected a number as time, but got {row['time']!r}.") from None
    return rows
