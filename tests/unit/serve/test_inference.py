"""What REST and gRPC requests have in common: parameters, shapes, outputs and tensors in binary."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_tta.errors import InputError
from delta_tta.serve.inference import LONGEST_NAME, asked, from_raw, options, shape_of, stream_name, unknown_type


def test_known_parameters_are_taken_and_others_belong_to_the_protocol():
    given_ = {"learn": False, "reset": True, "stream": "left", "priority": 3, "binary_data_output": True}
    assert options(given_) == {"learn": False, "reset": True, "stream": "left"}
    assert options({"learn": None, "stream": None}) == {}


@pytest.mark.parametrize(("name", "value"), [("learn", 1), ("reset", "true"), ("learn", [])])
def test_a_switch_is_true_or_false(name, value):
    with pytest.raises(InputError, match=f"`{name}` to be true or false, but got"):
        options({name: value})


@pytest.mark.parametrize("value", ["a", "camera 3", "é" * (LONGEST_NAME // 2), "../..", "x" * LONGEST_NAME])
def test_names_of_streams(value):
    assert stream_name(value) == value


@pytest.mark.parametrize(
    "value", ["", "a\nb", "\0", "x" * (LONGEST_NAME + 1), "é" * (LONGEST_NAME // 2 + 1), 3, None, ["a"]]
)
def test_what_names_no_stream(value):
    with pytest.raises(InputError, match=f"a printable text of 1 to {LONGEST_NAME} bytes"):
        stream_name(value)


def test_outputs_are_those_of_a_classifier():
    assert asked([("classes", True), ("logits", None)]) == {"classes": True, "logits": None}
    with pytest.raises(InputError, match="among logits, probabilities, classes, but got 'labels'"):
        asked([("classes", None), ("labels", None)])


def test_shapes():
    assert shape_of([2, 3, 8, 8]) == (2, 3, 8, 8)
    for wrong in (None, 3, [], [1] * 9, [-1, 3], [True], [1.0], ["3"], [2**31]):
        with pytest.raises(InputError, match="`shape` of the input to be a list of sizes"):
            shape_of(wrong)


@pytest.mark.parametrize("kind", ["FP32", "FP16", "UINT8"])
def test_numbers_in_binary(kind):
    code = {"FP32": "<f4", "FP16": "<f2", "UINT8": "u1"}[kind]
    values = np.arange(6).astype(code)
    assert from_raw(kind, values.tobytes()).tolist() == list(range(6))
    if kind != "UINT8":
        with pytest.raises(InputError, match=f"bytes for each {kind}, but got 7 bytes"):
            from_raw(kind, b"1234567")


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_texts_in_binary_are_led_by_their_length(elements):
    raw = b"".join(struct.pack("<I", len(one)) + one for one in elements)
    assert from_raw("BYTES", raw) == elements
    assert from_raw("BYTES", memoryview(raw)) == elements


@pytest.mark.parametrize("raw", [b"\3\0\0\0ab", b"\1\0\0", struct.pack("<I", 2**32 - 1), b"\1\0\0\0a\2\0\0\0"])
def test_texts_that_end_too_early(raw):
    with pytest.raises(InputError, match=r"bytes of element [01], but the content ends before"):
        from_raw("BYTES", raw)


def test_other_types_are_refused():
    assert "'INT8'" in str(unknown_type("INT8"))
    with pytest.raises(InputError, match=r"UINT8 \(0 to 255\) or BYTES \(JPEG or PNG\), but got 'BOOL'"):
        from_raw("BOOL", b"")
