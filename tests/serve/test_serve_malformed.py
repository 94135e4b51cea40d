"""Malformed requests get a sentence and change nothing."""

import io
import json
import re
import socket
import struct
import zlib

import grpc
import numpy as np
import pytest
import torch
import tritonclient.grpc
from PIL import Image
from servers import NAME, TOKEN, Server, state_of

from delta_tta.serve.messages import SERVICE, messages
from nets import batches

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve")]
INFER = f"/v2/models/{NAME}/infer"
BINARY = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    with Server("--checkpoints", folder, "--every", 1000, "--seconds", 1000, "--max-bytes", 200_000) as server:
        for x in batches(2):
            server.infer(x)
        yield server, folder / "shared"


def saved(server, folder):
    """Save, and return the step and digest of the state."""
    assert server.control("snapshot")[0] == 200
    state = torch.load(folder / "snapshot.pt", weights_only=True)
    return state["step"], state["checksum"]


def png(width, height):
    """A PNG that says it has this size, with almost no content."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def cut_image():
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()[:3000]


def tensor(datatype, shape, content):
    """One input, with its content in binary."""
    parameters = {"binary_data_size": len(content)}
    one = {"name": "input", "datatype": datatype, "shape": shape, "parameters": parameters}
    text = json.dumps({"inputs": [one]}).encode()
    return text + content, {BINARY: str(len(text))}


def bytes_of(*elements):
    return b"".join(struct.pack("<I", len(one)) + one for one in elements)


def listed(**changes):
    one = {"name": "input", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [0.5] * 192}
    return json.dumps({"inputs": [{**one, **changes}]}).encode(), {}


def with_parameters(**parameters):
    body = json.loads(listed()[0])
    return json.dumps({**body, "parameters": parameters}).encode(), {}


FLOATS = np.zeros((2, 3, 8, 8), "<f4")
BAD = FLOATS.copy()
BAD[1, 0, 0, 0] = np.nan
CASES = {
    "no JSON": (b"{", {}, "in JSON"),
    "no object": (b"[1]", {}, "JSON object"),
    "deep": (b"[" * 100_000, {}, "in JSON"),
    "no text": (b"\xff\xfe\x00", {}, "in JSON"),
    "nothing": (b"", {}, "in JSON"),
    "no inputs": (b"{}", {}, "list of objects"),
    "two inputs": (json.dumps({"inputs": [{"name": "input"}] * 2}).encode(), {}, "one input"),
    "another name": (*listed(name="images"), "one input"),
    "another type": (*listed(datatype="FP64"), "FP32 or FP16"),
    "no type": (*listed(datatype=None), "FP32 or FP16"),
    "a strange type": (*listed(datatype=["FP32"]), "FP32 or FP16"),
    "another shape": (*listed(shape=[1, 3, 4, 16]), r"Expected shape \['N', 3, 8, 8\]"),
    "another rank": (*listed(shape=[192]), "1 to 256 samples|Expected shape"),
    "no shape": (*listed(shape=None), "`shape`"),
    "a negative shape": (*listed(shape=[-1, 3, 8, 8]), "`shape`"),
    "a shape of truths": (*listed(shape=[True, 3, 8, 8]), "`shape`"),
    "no samples": (*listed(shape=[0, 3, 8, 8], data=[]), "1 to 256 samples"),
    "a huge shape": (*listed(shape=[2**30, 3, 8, 8]), "1 to 256 samples"),
    "few values": (*listed(data=[0.5] * 191), "Expected 192 values"),
    "texts": (*listed(data=["0.5"] * 192), "numbers as `data`"),
    "truths": (*listed(data=[True] * 192), "numbers as `data`"),
    "ragged": (*listed(data=[[1.0], [1.0, 2.0]]), "numbers as `data`"),
    "a number": (*listed(data=1.0), "`data`"),
    "NaN in JSON": (*listed(data=[float("nan")] * 192), "NaN or infinity"),
    "infinity in JSON": (*listed(data=[1e39] * 192), "NaN or infinity"),
    "huge integers": (*listed(data=[10**400] * 192), "numbers as `data`"),
    "large bytes": (*listed(datatype="UINT8", data=[256] * 192), "from 0 to 255"),
    "fractions as bytes": (*listed(datatype="UINT8"), "numbers as `data`"),
    "no base64": (*listed(datatype="BYTES", shape=[1], data=["!"]), "base64"),
    "numbers as base64": (*listed(datatype="BYTES", shape=[1], data=[1]), "base64"),
    "NaN": (*tensor("FP32", [2, 3, 8, 8], BAD.tobytes()), r"samples \[1\] hold NaN"),
    "infinity in halves": (*tensor("FP16", [1, 3, 8, 8], np.full(192, np.inf, "<f2").tobytes()), "NaN or infinity"),
    "half a number": (*tensor("FP32", [2, 3, 8, 8], FLOATS.tobytes()[:-1]), "4 bytes for each"),
    "too few numbers": (*tensor("FP32", [2, 3, 8, 8], FLOATS.tobytes()[:-4]), "Expected 384 values"),
    "bytes behind": (tensor("FP32", [2, 3, 8, 8], FLOATS.tobytes())[0] + b"more", None, "behind the JSON"),
    "bytes missing": (tensor("FP32", [2, 3, 8, 8], FLOATS.tobytes())[0][:-8], None, "behind the JSON"),
    "a long header": (b"{}", {BINARY: "3"}, "length of the JSON"),
    "a negative header": (b"{}", {BINARY: "-1"}, "length of the JSON"),
    "no image": (*tensor("BYTES", [1], bytes_of(b"not an image")), "JPEG or PNG"),
    "an empty image": (*tensor("BYTES", [1], bytes_of(b"")), "JPEG or PNG"),
    "a cut image": (*tensor("BYTES", [1], bytes_of(cut_image())), "JPEG or PNG"),
    "an empty PNG": (*tensor("BYTES", [1], bytes_of(png(64, 64))), "JPEG or PNG"),
    "a decompression bomb": (*tensor("BYTES", [1], bytes_of(png(60_000, 60_000))), "at most 50,000,000 pixels"),
    "a line": (*tensor("BYTES", [1], bytes_of(png(40_000, 2))), "no side 100 times"),
    "another format": (*tensor("BYTES", [1], bytes_of(b"GIF89a" + bytes(60))), "JPEG or PNG"),
    "a cut element": (*tensor("BYTES", [1], struct.pack("<I", 100) + b"short"), "content ends before"),
    "two images for one": (*tensor("BYTES", [1], bytes_of(b"a", b"b")), "Expected 1 values"),
    "images as a square": (*tensor("BYTES", [1, 2], bytes_of(b"a", b"b")), "encoded images"),
    "a stream of numbers": (*with_parameters(stream=7), "`stream`"),
    "a long stream": (*with_parameters(stream="x" * 65), "`stream`"),
    "a stream with a line": (*with_parameters(stream="a\nb"), "`stream`"),
    "learn as a text": (*with_parameters(learn="false"), "`learn`"),
    "reset as a number": (*with_parameters(reset=1), "`reset`"),
    "another output": (
        json.dumps({**json.loads(listed()[0]), "outputs": [{"name": "boxes"}]}).encode(), {}, "among logits",
    ),
    "outputs as texts": (
        json.dumps({**json.loads(listed()[0]), "outputs": ["logits"]}).encode(), {}, "list of objects",
    ),
}  # fmt: skip


def test_malformed_requests_get_a_sentence_and_change_nothing(running):
    server, folder = running
    before = saved(server, folder)
    x = batches(1)[0]
    answer = server.infer(x, learn=False)
    for name, (body, headers, said) in CASES.items():
        if headers is None:  # of the body before it was changed
            headers = {BINARY: str(body.index(b"]}") + 2)}
        status, _, content = server.ask("POST", INFER, body, headers)
        message = json.loads(content)
        assert status == 400, (name, status, message)
        assert list(message) == ["error"], name
        assert message["error"].startswith("Expected "), (name, message)
        assert re.search(said, message["error"]), (name, message)
        assert len(message["error"]) < 400, name
    assert saved(server, folder) == before
    np.testing.assert_array_equal(server.infer(x, learn=False), answer)
    assert server.metrics()['delta_tta_errors_total{status="400"}'] >= len(CASES)
    assert not [line for line in server.log if "Traceback" in line]


def test_a_large_body_is_refused_before_it_is_read(running):
    server, folder = running
    before = saved(server, folder)
    errors = server.status()["errors"]
    body = bytes(200_001)
    status, _, content = server.ask("POST", INFER, body)
    assert status == 413
    assert "at most 200,000 bytes" in json.loads(content)["error"]
    status, _, content = server.ask("POST", INFER, iter([body[:150_000]] * 2))  # in chunks, without a length
    assert status == 413
    status, _, content = server.ask("POST", INFER, body[:100], {"Content-Encoding": "gzip"})
    assert status == 415
    assert server.status()["errors"] == errors + 3
    assert saved(server, folder) == before


def test_a_client_that_goes_away_harms_nobody(running):
    server, folder = running
    before = saved(server, folder)
    for sent in (b"POST", f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n{{".encode()):
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(sent)
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(b"\x16\x03\x01 not HTTP\r\n\r\n")
        assert b"400" in connection.recv(100)
    assert saved(server, folder) == before


GRPC = {
    "another shape": ({"shape": [1, 3, 4, 16]}, np.zeros(192, "<f4").tobytes(), "Expected shape"),
    "a negative shape": ({"shape": [-1, 3, 8, 8]}, b"", "`shape`"),
    "another type": ({"datatype": "FP64"}, bytes(8 * 192), "FP32 or FP16"),
    "NaN": ({}, np.full(192, np.nan, "<f4").tobytes(), "NaN or infinity"),
    "half a number": ({}, b"abc", "4 bytes for each"),
    "no content": ({}, None, "Expected 192 values"),
    "halves that are not raw": ({"datatype": "FP16"}, None, "as raw content"),
    "another name": ({"name": "images"}, bytes(4 * 192), "one input"),
    "no image": ({"datatype": "BYTES", "shape": [1]}, bytes_of(b"no image"), "JPEG or PNG"),
    "a decompression bomb": ({"datatype": "BYTES", "shape": [1]}, bytes_of(png(60_000, 60_000)), "at most 50,000,000"),
}  # fmt: skip


def test_malformed_requests_over_grpc_are_invalid_arguments_and_change_nothing(running):
    server, folder = running
    before = saved(server, folder)
    kinds = messages()
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=kinds["ModelInferResponse"].FromString,
        )
        for name, (changes, raw, said) in GRPC.items():
            one = {"name": "input", "datatype": "FP32", "shape": [1, 3, 8, 8], **changes}
            request = kinds["ModelInferRequest"](model_name=NAME, inputs=[one])
            if raw is not None:
                request.raw_input_contents.append(raw)
            with pytest.raises(grpc.RpcError) as error:
                call(request)
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT, name
            assert said in error.value.details(), (name, error.value.details())
        request.parameters["stream"].int64_param = 7
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            call(request)
        with pytest.raises(grpc.RpcError):
            call(b"\xff not a message")
        request.raw_input_contents.append(bytes(200_001))
        with pytest.raises(grpc.RpcError, match="RESOURCE_EXHAUSTED"):
            call(request)
    assert saved(server, folder) == before


def test_a_tensor_over_grpc_need_not_be_raw(running):
    server, _ = running
    x = batches(1, size=1)[0]
    kinds = messages()
    with grpc.insecure_channel(f"{server.host}:{server.grpc_port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            request_serializer=kinds["ModelInferRequest"].SerializeToString,
            response_deserializer=kinds["ModelInferResponse"].FromString,
        )
        contents = {"fp32_contents": x.flatten().tolist()}
        one = {"name": "input", "datatype": "FP32", "shape": [1, 3, 8, 8], "contents": contents}
        request = kinds["ModelInferRequest"](model_name=NAME, inputs=[one])
        request.parameters["learn"].bool_param = False
        found = call(request)
    logits = np.frombuffer(found.raw_output_contents[0], "<f4").reshape(1, -1)
    np.testing.assert_array_equal(logits, server.infer(x, learn=False))


def test_whatever_was_sent_the_service_still_ends_well(running):
    server, folder = running
    assert server.token == TOKEN
    assert server.end() == 143
    assert state_of(folder)[0] == 2
    with pytest.raises(Exception, match=r"refused|UNAVAILABLE|failed"):
        tritonclient.grpc.InferenceServerClient(f"{server.host}:{server.grpc_port}").is_server_live()
