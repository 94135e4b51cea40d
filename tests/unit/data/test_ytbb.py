"""The classes of YouTube-BoundingBoxes."""

import pytest

from delta_tta import data
from delta_tta.errors import DataError


def manifest(tmp_path, text):
    path = tmp_path / "frames.csv"
    path.write_text(text)
    return path


def test_the_classes_of_ytbb_sub_are_among_the_23(tmp_path):
    names = [name.replace(" ", "_") for name in data.YOUTUBE_BB_CLASSES[:21]]
    lines = [f"{name}.png,{name},v,{time}" for time, name in enumerate(names)]
    found = data.ytbb_sub(manifest(tmp_path, "\n".join(["path,label,video,time", *lines])))
    assert found.classes == tuple(sorted(names))
    assert len({*data.YOUTUBE_BB_CLASSES}) == 23
    path = manifest(tmp_path, "\n".join(["path,label,video,time", *lines[1:], "x.png,none,v,99"]))
    with pytest.raises(DataError, match=r"expected classes of YouTube-BoundingBoxes, but got 'none'\. .*zebra"):
        data.ytbb_sub(path)
