"""Folders of images: your own, ImageNet-C, ImageNet-R; video manifests."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from delta_tta import data, models
from delta_tta.data.folders import imagenet_wnids
from delta_tta.errors import DataError, ModelError


def picture(path, level=0, side=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((side, side, 3), level, np.uint8)).save(path)


def test_the_thousand_names_are_imagenets():
    names = imagenet_wnids()
    assert len(set(names)) == 1000
    assert list(names) == sorted(names)
    assert (names[0], names[281], names[999]) == ("n01440764", "n02123045", "n15075141")  # tench, tabby, toilet tissue


def test_a_folder_is_read_class_by_class_in_the_order_of_names(tmp_path):
    for name, level in (("b/2.png", 2), ("b/1.png", 1), ("a/sub/9.JPG", 9)):
        picture(tmp_path / name, level)
    (tmp_path / "b" / "notes.txt").write_text("not an image")
    (tmp_path / "b" / "._1.png").write_text("what a Mac leaves behind")
    found = data.folder(tmp_path, size=8)
    assert found.classes == ("a", "b")
    assert found.labels.tolist() == [0, 1, 1]
    assert found.take([0, 1, 2])[:, 0, 0, 0].tolist() == pytest.approx([9, 1, 2], abs=1)
    assert found.outputs is None
    assert data.folder(tmp_path, size=None).take([0]).shape == (1, 8, 8, 3)
    (tmp_path / "aa").mkdir()
    with pytest.raises(DataError, match="class 'aa' holds no images"):
        data.folder(tmp_path)


def test_folders_without_images_are_refused(tmp_path):
    with pytest.raises(DataError, match="one sub-folder a class, but there is none"):
        data.folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="but found none"):
        data.folder(tmp_path)


def test_imagenet_c_knows_the_models_outputs(tmp_path):
    names = imagenet_wnids()
    for wnid in (names[7], names[300]):
        picture(tmp_path / "fog" / "3" / wnid / "x.JPEG", side=224)
    found = data.imagenet_c(tmp_path, "fog", 3)
    assert found.outputs == (7, 300)
    assert found.labels.tolist() == [0, 1]
    assert found.take([0]).shape == (1, 224, 224, 3)
    with pytest.raises(DataError, match="Zenodo"):
        data.imagenet_c(tmp_path, "snow", 3)


def test_imagenet_r_maps_the_logits_to_its_200_classes(tmp_path):
    chosen = list(range(0, 1000, 5))
    for k in chosen:
        picture(tmp_path / imagenet_wnids()[k] / "x.jpg", side=8)
    found = data.imagenet_r(tmp_path)
    assert found.outputs == tuple(chosen)
    whole = nn.Linear(4, 1000)
    part = models.Outputs(whole, found.outputs)
    x = torch.randn(3, 4)
    assert torch.equal(part(x), whole(x)[:, ::5])
    with pytest.raises(ModelError, match="different numbers"):
        models.Outputs(whole, [1, 1])
    picture(tmp_path / "other" / "x.jpg")
    with pytest.raises(DataError, match="found 201 folders with images, not all of them WordNet"):
        data.imagenet_r(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        data.imagenet_r(tmp_path / "nowhere")


def manifest(tmp_path, text):
    path = tmp_path / "frames.csv"
    path.write_text(text)
    return path


def test_frames_come_in_the_order_they_were_filmed(tmp_path):
    for i in range(4):
        picture(tmp_path / f"{i}.png", level=i * 10)
    path = manifest(
        tmp_path, "path,label,video,time\n0.png,dog,v2,2.5\n1.png,cat,v1,0\n2.png,dog,v2,10\n3.png,dog,v2,0.5\n"
    )
    found = data.video(path, size=8)
    assert found.videos == ("v2", "v2", "v2", "v1")
    assert found.take(range(4))[:, 0, 0, 0].tolist() == [30, 0, 20, 10]
    assert found.classes == ("cat", "dog")
    assert data.video(path, classes=["dog", "x", "cat"]).labels.tolist() == [0, 0, 0, 2]


def test_numbers_as_labels_stay_as_they_are(tmp_path):
    path = manifest(tmp_path, "path,label,video,time\na.png,20,v,1\nb.png,3,v,2\n")
    assert data.ytbb_sub(path).labels.tolist() == [20, 3]
    assert data.ytbb_sub(path).name == "YTBB-sub"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label,video\na.png,1,v\n", "time is missing"),
        ("path,label,video,time\na.png,1,v,soon\n", "line 2: expected a number as time, but got 'soon'"),
        ("path,label,video,time\n../../secret.png,1,v,1\n", "expected paths below"),
        ("path,label,video,time\n", "lists no images"),
        ("path,label,video,time\na.png,1\n", "line 2: .* the line is shorter"),
    ],
)
def test_a_wrong_manifest_says_what_is_wrong(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        data.video(manifest(tmp_path, text))


def test_wrong_classes_and_a_missing_manifest_are_refused(tmp_path):
    path = manifest(tmp_path, "path,label,video,time\na.png,cow,v,1\n")
    with pytest.raises(DataError, match="among the 1 classes, but got cow"):
        data.video(path, classes=["cat"])
    with pytest.raises(DataError, match="21 classes of YTBB-sub, but got 1"):
        data.ytbb_sub(path)
    with pytest.raises(DataError, match=r"Expected a CSV manifest"):
        data.video(tmp_path / "none.csv")


def test_another_picture_of_the_same_size_has_another_fingerprint(tmp_path):
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / label / "0.bmp")
    before = data.folder(tmp_path, size=None).fingerprint()
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(tmp_path / "a" / "0.bmp")
    assert data.folder(tmp_path, size=None).fingerprint() != before
