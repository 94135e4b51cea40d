"""`corrupt`: what comes out, what it depends on and what it does not, and what it refuses."""

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_tta.corruptions import TYPES, VALIDATION, corrupt, describe
from delta_tta.errors import InputError, SettingError
from scenes import SETS

NAMES = (*TYPES, *VALIDATION)
SEVERITIES = range(1, 6)
FIXED = {
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "pixelate",
    "jpeg_compression",
    "gaussian_blur",
    "saturate",
}


RANDOM = [name for name in NAMES if name not in FIXED]
FEW = ("shot_noise", "glass_blur", "snow", "frost", "fog", "contrast", "elastic_transform", "spatter")


def photos(count, height=32, width=32, seed=0):
    """Coarse blocks of colour with some grain: every corruption does something to them."""
    draw = np.random.default_rng(seed)
    blocks = draw.integers(20, 236, (count, height // 4 + 1, width // 4 + 1, 3))
    coarse = blocks.repeat(4, axis=1).repeat(4, axis=2)[:, :height, :width]
    return (coarse + draw.integers(-20, 20, coarse.shape)).astype(np.uint8)


CLEAN = photos(6)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("name", NAMES)
def test_copies_of_the_same_kind_come_back_and_the_input_stays(name, constants):
    images = CLEAN.copy()
    for severity in SEVERITIES:
        made = corrupt(images, name, severity, constants)
        assert (made.dtype, made.shape) == (np.uint8, CLEAN.shape)
        assert not np.shares_memory(made, images)
        assert (images == CLEAN).all()
        assert (made != CLEAN).any(axis=(1, 2, 3)).all(), severity


@pytest.mark.parametrize("name", NAMES)
def test_a_single_image_is_a_batch_of_one(name):
    made = corrupt(CLEAN[2], name, 3)
    assert made.shape == (32, 32, 3)
    assert (made == corrupt(CLEAN[2:3], name, 3)[0]).all()
    assert (corrupt(CLEAN[2], name, 3, index=[7]) == corrupt(CLEAN[2:3], name, 3, index=[7])[0]).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_where_anything_is_drawn(name):
    for constants in SETS:
        made = corrupt(CLEAN, name, 4, constants, seed=1)
        assert (made == corrupt(CLEAN, name, 4, constants, seed=1)).all()
        assert (made != corrupt(CLEAN, name, 4, constants, seed=2)).any() == (name in RANDOM)


@pytest.mark.parametrize("name", FEW)
@settings(max_examples=10)
@given(order=st.permutations(range(6)), cuts=st.sets(st.integers(1, 5)), constants=st.sampled_from(SETS))
def test_neither_order_nor_batches_matter(name, order, cuts, constants):
    whole = corrupt(CLEAN, name, 4, constants)
    parts = [corrupt(part, name, 4, constants) for part in np.split(CLEAN[list(order)], sorted(cuts))]
    assert (np.concatenate(parts) == whole[list(order)]).all()


@pytest.mark.parametrize("name", NAMES)
def test_an_image_in_a_batch_too_large_to_work_on_at_once_is_as_alone(name):
    many = photos(9, 128, 130)
    made = corrupt(many, name, 5, "imagenet")
    for i in (0, 7, 8):
        assert (made[i] == corrupt(many[i], name, 5, "imagenet")).all()


TESTS = str(Path(__file__).parents[2])


def digest():
    made = [corrupt(CLEAN[:2], name, s, c).tobytes() for name in NAMES for s in SEVERITIES for c in SETS]
    return hashlib.sha256(b"".join(made)).hexdigest()


def test_another_process_makes_the_same_bytes():
    code = f"import runpy, sys; sys.path.insert(0, {TESTS!r}); print(runpy.run_path({__file__!r})['digest']())"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert there.stdout.strip() == digest()


@pytest.mark.parametrize("name", RANDOM)
def test_equal_images_are_told_apart_by_index_only(name):
    twins = CLEAN[[0, 0]]
    for constants in SETS:
        first, second = corrupt(twins, name, 5, constants)
        assert (first == second).all()
        first, second = corrupt(twins, name, 5, constants, index=[3, 4])
        assert (first != second).any()
        backwards = corrupt(twins, name, 5, constants, index=np.array([4, 3]))
        assert (backwards == np.stack([second, first])).all()


def test_the_index_fixes_the_draw_whatever_the_image():
    flat = np.stack([np.full((32, 32, 3), level, np.uint8) for level in (100, 140)])
    for index in ([5, 5], [5, 6]):
        noise = corrupt(flat, "gaussian_noise", 1, index=index).astype(int) - flat
        assert (noise[0] == noise[1]).all() == (index[0] == index[1])


@pytest.mark.parametrize("name", NAMES)
def test_global_random_states_are_neither_used_nor_moved(name):
    made = []
    for seed in (1, 2):
        random.seed(seed), np.random.seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]
        made.append(corrupt(CLEAN[:2], name))
        assert (random.getstate(), np.random.get_state()[1].tolist(), np.random.get_state()[2]) == before
    assert (made[0] == made[1]).all()


VIEWS = {
    "every second": lambda x: x[::2],
    "mirrored": lambda x: x[:, :, ::-1],
    "upside down": lambda x: x[:, ::-1],
    "BGR": lambda x: x[..., ::-1],
    "cropped": lambda x: x[:, 3:28, 5:26],
    "channels first": lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1),
    "Fortran": np.asfortranarray,
    "one image, repeated": lambda x: np.broadcast_to(x[0], x.shape),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_is_corrupted_as_its_copy_is(view):
    seen = view(CLEAN)
    for name in NAMES:
        for constants in SETS:
            assert (corrupt(seen, name, 5, constants) == corrupt(seen.copy(order="C"), name, 5, constants)).all(), name


@settings(max_examples=30)
@given(st.integers(8, 48), st.integers(8, 48), st.sampled_from(SEVERITIES), st.sampled_from(SETS))
def test_every_size_works(height, width, severity, constants):
    clean = photos(2, height, width)
    for name in NAMES:
        made = corrupt(clean, name, severity, constants)
        assert made.shape == clean.shape
        assert (made[1] == corrupt(clean[1], name, severity, constants)).all(), name


@pytest.mark.parametrize("level", [0, 77, 255])
def test_flat_images_work(level):
    clean = np.full((1, 16, 16, 3), level, np.uint8)
    for name in NAMES:
        for severity in SEVERITIES:
            assert corrupt(clean, name, severity, "imagenet").shape == clean.shape


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_batch_stays_empty(name):
    for index in (None, []):
        assert corrupt(CLEAN[:0], name, index=index).shape == (0, 32, 32, 3)


@pytest.mark.parametrize("constants", SETS)
@pytest.mark.parametrize("severity", [1, np.int64(5), np.uint8(3)])
def test_numpys_integers_are_integers(severity, constants):
    assert (corrupt(CLEAN, "fog", severity, constants) == corrupt(CLEAN, "fog", int(severity), constants)).all()


@pytest.mark.parametrize(
    ("images", "teaches"),
    [
        (CLEAN.astype(np.float32), "uint8, 0 to 255, but got ndarray of float32"),
        (CLEAN.astype(np.int64), "ndarray of int64"),
        (CLEAN.tolist(), "but got list"),
        (CLEAN[0, 0], "(N, H, W, 3), but got (32, 3)"),
        (CLEAN[None], "(1, 6, 32, 32, 3)"),
        (CLEAN.transpose(0, 3, 1, 2), "(6, 3, 32, 32)"),
        (CLEAN[..., :1], "(6, 32, 32, 1)"),
        (CLEAN[:, :0], "(6, 0, 32, 3)"),
    ],
)
def test_what_is_no_rgb_image_is_refused(images, teaches):
    with pytest.raises(InputError) as error:
        corrupt(images, "fog")
    assert teaches in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "teaches"),
    [
        ({"name": "gausian_noise"}, "Did you mean 'gaussian_noise'?"),
        ({"name": "Fog"}, "Did you mean 'fog'?"),
        ({"name": "qqqq"}, "Known: brightness, contrast"),
        ({"name": None}, "Unknown corruption None"),
        ({"severity": 0}, "integer from 1 to 5, but got 0"),
        ({"severity": 6}, "but got 6"),
        ({"severity": True}, "but got True"),
        ({"severity": 2.5}, "but got 2.5"),
        ({"severity": "3"}, "but got '3'"),
        ({"constants": "imagenett"}, "Did you mean 'imagenet'?"),
        ({"constants": None}, "Unknown constants None"),
    ],
)
def test_unknown_settings_are_refused(arguments, teaches):
    arguments = {"name": "fog", "severity": 5, "constants": "cifar", **arguments}
    for function in (lambda **kwargs: corrupt(CLEAN, **kwargs), describe):
        with pytest.raises(SettingError) as error:
            function(**arguments)
        assert teaches in str(error.value)


@pytest.mark.parametrize("index", [[], [1], range(7), 3, [0.5] * 6, [-1, 0, 1, 2, 3, 4], [[0] * 6]])
def test_an_index_that_is_not_one_whole_number_an_image_is_refused(index):
    with pytest.raises(InputError, match="`index` to be 6 integers of at least 0"):
        corrupt(CLEAN, "fog", index=index)


@pytest.mark.parametrize("seed", [-1, 1.5, None, True])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(SettingError, match="`seed` to be an integer of at least 0"):
        corrupt(CLEAN, "fog", seed=seed)


def test_the_mean_of_a_large_image_is_exact():
    flat = np.full((1024, 1024, 3), 200, np.uint8)
    assert (corrupt(flat, "contrast", 5, "imagenet") == 200).all()
