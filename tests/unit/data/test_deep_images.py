"""Grey images of more than 8 bits: scaled to 8, or refused by name; never cut off to white or black."""

import numpy as np
import pytest
from PIL import Image

from delta_tta import data
from delta_tta.corruptions.make import make_set
from delta_tta.data.sets import read_image
from delta_tta.errors import DataError

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)


def written(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sixteen.png", RAMP.astype(np.uint16) * 257),
        ("sixteen.tif", RAMP.astype(np.uint16) * 257),
        ("thirty-two.tif", RAMP.astype(np.int32) * 257),
        ("float.tif", (RAMP / 255).astype(np.float32)),
    ],
)
def test_deep_images_are_what_they_are_with_8_bits(tmp_path, name, values):
    found = read_image(written(tmp_path / name, values), None)
    assert (found == RAMP[..., None].repeat(3, 2)).all()


def test_the_nearest_of_the_256_levels_is_taken(tmp_path):
    values = np.array([[0, 128, 129, 65406, 65407, 65535]], np.uint16)
    assert read_image(written(tmp_path / "a.png", values), None)[0, :, 0].tolist() == [0, 0, 1, 254, 255, 255]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (RAMP.astype(np.float32), "from 0 to 1 .*, but they go from 0 to 255"),
        ((RAMP / 255 - 0.5).astype(np.float32), "from 0 to 1 .*, but they go from -0.5 to 0.5"),
        (np.full((4, 4), np.nan, np.float32), "from 0 to 1 .*, but they go from nan to nan"),
        (RAMP.astype(np.int32) * 1000, "from 0 to 65535 .*, but they go from 0 to 255000"),
        (RAMP.astype(np.int32) - 1, "from 0 to 65535 .*, but they go from -1 to 254"),
    ],
)
def test_what_has_no_known_white_is_refused_by_name(tmp_path, values, message):
    with pytest.raises(DataError, match=rf"a\.tif: expected grey values {message}"):
        read_image(written(tmp_path / "a.tif", values), None)


def test_folders_manifests_and_corrupted_copies_read_them_so(tmp_path):
    for name, level in (("clean/a/x.png", 20), ("clean/b/y.png", 200)):
        written(tmp_path / name, np.full((16, 16), level * 257, np.uint16))
    found = data.folder(tmp_path / "clean", size=16)
    assert found.take([0, 1])[:, 0, 0].tolist() == [[20] * 3, [200] * 3]
    (tmp_path / "clean" / "frames.csv").write_text("path,label,video,time\na/x.png,0,v,1\nb/y.png,0,v,2\n")
    assert data.video(tmp_path / "clean" / "frames.csv", size=16).take([1])[0, 0, 0].tolist() == [200] * 3
    make_set(found, tmp_path / "out", ["contrast"], [1], workers=1)
    made = data.imagenet_c(tmp_path / "out", "contrast", 1).take([0, 1])  # grey stays grey: contrast keeps the mean
    assert made.mean((1, 2, 3)).tolist() == pytest.approx([20, 200], abs=1)
