"""Requests and answers in JSON, with tensors in it or in binary behind it."""

import base64
import json

import numpy as np
import pytest

from delta_tta.errors import InputError
from delta_tta.serve.inference import Answer, Inference
from delta_tta.serve.protocol import HEADER, read, write

ONE = {"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [0.5, -1]}


def body(one=None, **more):
    return json.dumps({"inputs": [{**ONE, **(one or {})}], **more}).encode()


def test_values_in_the_json():
    found = read(body(id="seven", parameters={"stream": "a", "learn": False}, outputs=[{"name": "classes"}]), None)
    assert (found.datatype, found.shape, found.content.tolist()) == ("FP32", (1, 2), [0.5, -1])
    assert (found.identity, found.stream, found.learn, found.reset) == ("seven", "a", False, False)
    assert found.outputs == {"classes": None}
    assert read(body({"data": [[1, 2]]}), None).content.dtype == np.float32
    assert read(body({"datatype": "UINT8", "data": [0, 255]}), None).content.tolist() == [0, 255]


def test_values_in_binary_behind_the_json():
    values = np.array([3, 4], "<f4").tobytes()
    one = {key: value for key, value in ONE.items() if key != "data"}
    text = json.dumps({"inputs": [{**one, "parameters": {"binary_data_size": 8}}]}).encode()
    assert read(text + values, str(len(text))).content.tolist() == [3, 4]


def test_images_are_base64_in_json():
    data = [base64.b64encode(b"png").decode()]
    assert read(body({"datatype": "BYTES", "shape": [1], "data": data}), None).content == [b"png"]


@pytest.mark.parametrize(
    ("content", "header", "words"),
    [
        (b"{", None, "a request in JSON, but got 1 bytes"),
        (b"[" * 100_000, None, "a request in JSON"),
        (b"[]", None, "Expected a JSON object, but got list"),
        (b"{}", None, "`inputs` to be a list of objects, but got None"),
        (body({"name": "x"}), None, r"one input named 'input', but got \['x'\]"),
        (body({"shape": None}), None, "`shape` of the input"),
        (body({"datatype": "FP64"}), None, "but got 'FP64'"),
        (body({"data": 3}), None, "`data` of the input to be a list, but got int"),
        (body({"data": ["a", "b"]}), None, "Expected numbers as `data` of FP32"),
        (body({"data": [[1], [2, 3]]}), None, "in lists of equal length"),
        (body({"datatype": "UINT8", "data": [0, 256]}), None, "UINT8 from 0 to 255, but got 0 to 256"),
        (body({"datatype": "UINT8", "data": [0.5, 1]}), None, "Expected numbers as `data` of UINT8"),
        (body({"datatype": "BYTES", "shape": [1], "data": ["%"]}), None, "images in base64"),
        (body({"parameters": 3}), None, "`parameters` to be an object"),
        (body(outputs=3), None, "`outputs` to be a list of objects"),
        (body(outputs=[{"name": "y"}]), None, "but got 'y'"),
        (body(), "9999", f"in {HEADER}, but got '9999'"),
        (body(), "x", f"in {HEADER}, but got 'x'"),
        (body({"parameters": {"binary_data_size": 8}}), None, "Expected 8 bytes behind the JSON"),
        (body(parameters={"learn": "no"}), None, "`learn` to be true or false"),
    ],
)
def test_what_is_no_request_says_what_was_expected(content, header, words):
    with pytest.raises(InputError, match=words):
        read(content, header)


LOGITS = np.array([[1.5, np.inf]], np.float32)
ANSWER = Answer({"logits": LOGITS, "classes": np.array([1])})


def asked(**more):
    return Inference("FP32", (1, 2), np.zeros(2), **more)


def test_an_answer_in_json():
    text, headers = write("net", asked(identity="seven"), ANSWER)
    assert headers == {"content-type": "application/json"}
    found = json.loads(text, parse_constant=pytest.fail)
    assert (found["model_name"], found["model_version"], found["id"]) == ("net", "1", "seven")
    assert found["outputs"][0] == {"name": "logits", "datatype": "FP32", "shape": [1, 2], "data": [1.5, None]}
    assert found["outputs"][1] == {"name": "classes", "datatype": "INT64", "shape": [1], "data": [1]}
    assert "id" not in json.loads(write("net", asked(), ANSWER)[0])


@pytest.mark.parametrize("more", [{"binary": True, "outputs": {"classes": False}}, {"outputs": {"logits": True}}])
def test_an_answer_partly_in_binary(more):
    text, headers = write("net", asked(**more), ANSWER)
    assert headers["content-type"] == "application/octet-stream"
    length = int(headers[HEADER])
    logits, classes = json.loads(text[:length])["outputs"]
    assert logits["parameters"] == {"binary_data_size": 8}
    assert "data" not in logits
    assert classes["data"] == [1]
    assert np.frombuffer(text[length:], "<f4").tolist() == [1.5, np.inf]
