"""Manifests as spreadsheets and pandas write them: labels keep their numbers, errors name the line."""

import pytest

from delta_tta import data
from delta_tta.errors import DataError

HEAD = "path,label,video,time\n"


def labels(tmp_path, *written, **changes):
    path = tmp_path / "frames.csv"
    lines = [f"{i}.png,{label},v,{i}\n" for i, label in enumerate(written)]
    path.write_text(HEAD + "".join(lines), encoding="utf-8")
    return data.video(path, **changes).labels.tolist()


def test_integers_stay_what_they_are_however_they_are_written(tmp_path):
    assert labels(tmp_path, "3.0", "10.0", "0.0") == [3, 10, 0]  # pandas, where the column has a gap
    assert labels(tmp_path, " 3", "10 ", "\t0") == [3, 10, 0]
    assert labels(tmp_path, "3", "1e1", "+0", "٣") == [3, 10, 0, 3]


def test_names_lose_the_blanks_around_them(tmp_path):
    assert labels(tmp_path, " dog", "cat", "dog ") == [1, 0, 1]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["0", "-1"], "line 3: expected an integer from 0 to 99,999 as label, but got -1"),
        (["1", "1.5"], "line 3: expected an integer .*, but got 1.5"),
        (["1", "1e999"], "line 3: expected an integer .*, but got 1e999"),
        (["0", "4000000000"], "line 3: expected an integer .*, but got 4000000000"),
        (["cat", "dog", "7"], "line 2: expected labels that are all integers or all names, but got 'cat', and '7'"),
        (["7", "nan"], "line 3: .* all integers or all names, but got 'nan', and '7' in line 2"),
        (["cat", " "], "line 3: expected a label, but it is empty"),
    ],
)
def test_a_wrong_label_is_named_by_its_line(tmp_path, written, message):
    with pytest.raises(DataError, match=message):
        labels(tmp_path, *written)


def test_classes_that_are_named_by_numbers_are_found(tmp_path):
    assert labels(tmp_path, "7.0", " 5", classes=["5", "7"]) == [1, 0]
    with pytest.raises(DataError, match="line 3: expected labels among the 2 classes, but got 6"):
        labels(tmp_path, "7", "6", classes=["5", "7"])


def test_excel_begins_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "frames.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (HEAD + "a.png,cat,v,1\n").encode())
    assert data.video(path).classes == ("cat",)


@pytest.mark.parametrize("time", ["nan", "inf", "-inf", ""])
def test_a_time_is_a_finite_number(tmp_path, time):
    path = tmp_path / "frames.csv"
    path.write_text(f"{HEAD}a.png,1,v,1\n\nb.png,1,v,{time}\n")
    with pytest.raises(DataError, match=f"line 4: expected a number as time, but got '{time}'"):
        data.video(path)


def test_a_path_that_is_none_is_named_by_its_line(tmp_path):
    (tmp_path / "loop.png").symlink_to("loop.png")
    path = tmp_path / "frames.csv"
    for name in ("a\0.png", "loop.png/x.png", "../a.png"):
        path.write_text(f"{HEAD}{name},1,v,1\n")
        with pytest.raises(DataError, match=r"frames\.csv"):
            data.video(path).take([0])
