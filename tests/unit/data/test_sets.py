"""Sets of images: order, streams, files, corruption on the fly."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from delta_tta import corruptions, data
from delta_tta.corruptions.make import make_set
from delta_tta.data.sets import read_image
from delta_tta.errors import DataError, InputError, SettingError
from delta_tta.streams import stream


@pytest.fixture
def clean():
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 12, 10, 3), dtype=np.uint8)
    return data.ArraySet("noise", images, np.arange(40) % 4, ["a", "b", "c", "d"])


def test_an_item_is_an_image_with_channels_first_and_its_label(clean):
    image, label = clean[5]
    assert image.dtype == torch.uint8
    assert image.shape == (3, 12, 10)
    assert (image.permute(1, 2, 0).numpy() == clean.images[5]).all()
    assert label == 1
    assert (clean[-1][0] == clean[39][0]).all()
    with pytest.raises(IndexError, match="40 images, but got index 40"):
        clean[40]


def test_a_stream_leads_through_a_set_by_batches_and_by_a_loader_alike(clean):
    order = stream(clean.labels, "DS+CB", rho=0.5)
    ours = list(clean.batches(order.indices, 16))
    theirs = list(DataLoader(clean, batch_size=16, sampler=order))
    assert [len(labels) for _, labels in ours] == [16, 16, 8]
    for (images, labels), (same_images, same_labels) in zip(ours, theirs, strict=True):
        assert (images == same_images).all()
        assert (labels == same_labels).all()
    with pytest.raises(InputError, match="batch size of at least 1, but got 0"):
        list(clean.batches(order.indices, 0))


def test_what_does_not_fit_together_is_refused():
    images = np.zeros((3, 4, 4, 3), np.uint8)
    with pytest.raises(DataError, match="3 images, but 2 labels"):
        data.ArraySet("x", images, [0, 1], "ab")
    with pytest.raises(DataError, match="from 0 to 1, but they go from 0 to 2"):
        data.ArraySet("x", images, [0, 1, 2], "ab")
    with pytest.raises(DataError, match="uint8"):
        data.ArraySet("x", images.astype(float), [0, 1, 0], "ab")
    with pytest.raises(DataError, match="no images"):
        data.ArraySet("x", images[:0], [], "ab")


def test_corruption_on_the_fly_depends_on_the_image_not_on_the_batch(clean):
    noisy = data.Corrupted(clean, "gaussian_noise", 3, seed=7)
    whole = noisy.take(np.arange(40))
    assert (noisy.take([30, 2]) == whole[[30, 2]]).all()
    assert (whole == corruptions.corrupt(clean.images, "gaussian_noise", 3, "cifar", 7, index=range(40))).all()
    assert (data.in_memory(noisy).take([4]) == whole[[4]]).all()
    assert noisy.describe() == data.in_memory(noisy).describe()
    assert noisy.describe()["samples"] == 40
    assert noisy.describe()["corruption"] == "gaussian_noise 3 (cifar constants)"
    with pytest.raises(SettingError, match="Did you mean 'fog'"):
        data.Corrupted(clean, "fogg")


def test_large_images_get_the_constants_of_imagenet():
    large = data.ArraySet("large", np.zeros((1, 65, 70, 3), np.uint8), [0], "a")
    assert "imagenet constants" in data.Corrupted(large, "fog", 1).name


def test_joined_sets_are_one_after_another(clean):
    noisy = data.Corrupted(clean, "gaussian_noise", 1)
    both = data.Concat([clean, noisy])
    assert len(both) == 80
    taken = both.take([79, 3, 40, 39])
    assert (taken[[1, 3]] == clean.take([3, 39])).all()
    assert (taken[[0, 2]] == noisy.take([39, 0])).all()
    assert (both.labels == np.tile(clean.labels, 2)).all()
    other = data.ArraySet("other", clean.images, clean.labels, "wxyz")
    with pytest.raises(DataError, match="same classes"):
        data.Concat([clean, other])


def test_frost_says_where_its_pictures_come_from(clean):
    assert corruptions.frost_source() in data.Corrupted(clean, "frost", 1).describe()["corruption"]


def test_an_image_file_is_scaled_to_its_shorter_side_and_cut_to_the_centre(tmp_path):
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 255  # the middle third
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (read_image(tmp_path / "wide.png", size=16, resize=16) == 255).mean() > 0.85
    assert read_image(tmp_path / "wide.png", size=None).shape == (32, 96, 3)
    Image.fromarray(wide[:, :32]).save(tmp_path / "exact.png")
    assert (read_image(tmp_path / "exact.png", size=32, resize=37) == wide[:, :32]).all()


def test_a_missing_and_a_damaged_image_say_which(tmp_path):
    with pytest.raises(DataError, match=r"Expected an image at .*none\.png"):
        read_image(tmp_path / "none.png", 8)
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n cut off here")
    with pytest.raises(DataError, match=r"cut\.png is not a readable image"):
        read_image(tmp_path / "cut.png", 8)


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
