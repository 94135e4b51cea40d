"""From what a client sent to the tensor that the model takes."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from delta_tta.errors import InputError
from delta_tta.serve.inference import Inference
from delta_tta.serve.inputs import Wanted
from serving import HALF, WANTED


def encoded(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def draw(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(("kind", "code"), [("FP32", np.float32), ("FP16", np.float16)])
def test_floats_are_taken_as_they_are(kind, code):
    values = np.linspace(-3, 3, 2 * 192).astype(code)
    x = WANTED.tensor(Inference(kind, (2, 3, 8, 8), values))
    assert x.dtype == torch.float32
    assert np.array_equal(x.numpy().ravel(), values.astype(np.float32))
    values[0] = 9
    assert x.flatten()[0] == -3  # a copy


def test_bytes_are_normalised():
    image = draw(2, 3, 8, 8)
    x = WANTED.tensor(Inference("UINT8", (2, 3, 8, 8), image.ravel()))
    np.testing.assert_allclose(x.numpy(), (image / 255 - 0.5) / 0.25, atol=1e-5)


def test_encoded_images_are_scaled_cut_and_normalised():
    flat = np.full((20, 30, 3), (51, 102, 204), np.uint8)
    x = WANTED.tensor(Inference("BYTES", (2,), [encoded(flat), encoded(flat, "JPEG")]))
    assert x.shape == (2, 3, 8, 8)
    expected = (torch.tensor([0.2, 0.4, 0.8]) - 0.5) / 0.25
    assert torch.allclose(x[0], expected.view(3, 1, 1).expand(3, 8, 8), atol=1e-5)
    assert torch.allclose(x[1], x[0], atol=0.1)
    grey = WANTED.tensor(Inference("BYTES", (1, 1), [encoded(draw(9, 9))]))
    assert torch.equal(grey[0, 0], grey[0, 2])


@pytest.mark.parametrize(
    ("kind", "shape", "content", "words"),
    [
        ("FP32", (0, 3, 8, 8), np.zeros(0, np.float32), "1 to 256 samples in a request, but got 0"),
        ("FP32", (257, 3, 8, 8), np.zeros(257 * 192, np.float32), "but got 257; send several requests"),
        ("FP32", (2, 3, 8, 8), np.zeros(192, np.float32), r"384 values for shape \[2, 3, 8, 8\], but got 192"),
        ("FP32", (1, 8, 8, 3), np.zeros(192, np.float32), r"shape \['N', 3, 8, 8\], but got \[1, 8, 8, 3\]"),
        ("INT64", (1, 3, 8, 8), np.zeros(192, np.int64), "but got 'INT64'"),
        ("BYTES", (2,), [b"x"], r"2 values for shape \[2\], but got 1"),
        ("BYTES", (1, 1, 1), [b"x"], r"shape \[N\] or \[N, 1\] of encoded images"),
        ("BYTES", (2,), [encoded(draw(9, 9, 3)), b"GIF89a"], "as element 1, but it cannot be read"),
        ("BYTES", (1,), [encoded(draw(9, 9).astype(np.uint16) * 200)], "more than 8 bits a channel"),
        ("BYTES", (1,), [encoded(draw(1, 200, 3))], "no side 100 times the other, but element 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(kind, shape, content, words):
    with pytest.raises(InputError, match=words):
        WANTED.tensor(Inference(kind, shape, content))


def test_values_that_are_not_finite_are_named():
    values = np.zeros((3, 3, 8, 8), np.float32)
    values[1, 0, 0, 0], values[2, 2, 7, 7] = np.nan, np.inf
    with pytest.raises(InputError, match=r"finite values, but samples \[1, 2\] hold"):
        WANTED.tensor(Inference("FP32", values.shape, values.ravel()))


def test_an_image_that_is_too_large_is_never_decoded():
    small = Wanted((3, 8, 8), HALF, pixels=99)
    assert small.tensor(Inference("BYTES", (1,), [encoded(draw(9, 11, 3))])).shape == (1, 3, 8, 8)
    with pytest.raises(InputError, match="at most 99 pixels"):
        small.tensor(Inference("BYTES", (1,), [encoded(draw(10, 10, 3))]))


def test_a_model_that_takes_no_images_takes_floats_alone():
    flat = Wanted((6,), None)
    assert flat.tensor(Inference("FP32", (2, 6), np.zeros(12, np.float32))).shape == (2, 6)
    with pytest.raises(InputError, match=r"takes samples of \[6\], no RGB images"):
        flat.tensor(Inference("UINT8", (2, 6), np.zeros(12, np.uint8)))
    with pytest.raises(InputError, match="no square images"):
        Wanted((3, 8, 9), HALF).tensor(Inference("BYTES", (1,), [encoded(draw(9, 9, 3))]))
