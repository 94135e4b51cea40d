"""The messages of gRPC: requests read, answers written; and a server on a free port, asked once."""

import asyncio

import numpy as np
import pytest

from delta_tta.errors import InputError, SettingError
from delta_tta.serve.inference import Answer
from delta_tta.serve.security import Gate
from nets import batches
from serving import serving

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("starlette")
import grpc

from delta_tta.serve.grpc_server import bind, make_server, read, write
from delta_tta.serve.messages import SERVICE, messages
from delta_tta.serve.served import Local

TOKEN = "0123456789abcdef"


def message(x=None, datatype="FP32", shape=(1, 2), raw=True, **more):
    made = messages()["ModelInferRequest"](model_name="conv", id="seven", **more)
    one = made.inputs.add(name="input", datatype=datatype, shape=shape)
    if raw and x is not None:
        made.raw_input_contents.append(x.tobytes())
    elif x is not None:
        fields = {"FP32": one.contents.fp32_contents, "UINT8": one.contents.uint_contents}
        fields.get(datatype, one.contents.bytes_contents).extend(x)
    return made


@pytest.mark.parametrize(
    ("datatype", "raw", "content"),
    [
        ("FP32", True, np.array([1.5, -2], "<f4")),
        ("FP16", True, np.array([1.5, -2], "<f2")),
        ("UINT8", True, np.array([0, 255], "u1")),
        ("FP32", False, [1.5, -2]),
        ("UINT8", False, [0, 255]),
    ],
)
def test_numbers_raw_or_in_their_field(datatype, raw, content):
    found = read(message(content, datatype, raw=raw))
    assert (found.datatype, found.shape, found.identity) == (datatype, (1, 2), "seven")
    assert found.content.tolist() == list(content)


def test_texts_parameters_and_outputs():
    made = message([b"png", b"jpeg"], "BYTES", (2,), raw=False)
    made.parameters["stream"].string_param = "left"
    made.parameters["learn"].bool_param = False
    made.outputs.add(name="classes")
    found = read(made)
    assert (found.content, found.stream, found.learn) == ([b"png", b"jpeg"], "left", False)
    assert found.outputs == {"classes": None}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: messages()["ModelInferRequest"](), r"one input named 'input', but got \[\]"),
        (lambda: message([1.0], shape=(-1, 2), raw=False), "a list of sizes"),
        (lambda: message([1.0], shape=(), raw=False), "a list of sizes"),
        (lambda: message(datatype="FP64"), "but got 'FP64'"),
        (lambda: message(datatype="FP16"), "FP16 as raw content, but got none"),
        (lambda: message([256], "UINT8", raw=False), "UINT8 from 0 to 255, but got 256"),
        (lambda: message(np.zeros(2, "<f4"), raw_input_contents=[b"12345678"]), "one raw content for one input"),
    ],
)
def test_what_is_no_request_says_what_was_expected(make, words):
    with pytest.raises(InputError, match=words):
        read(make())


def test_all_outputs_are_raw():
    logits = np.array([[1.5, 2]], np.float64)
    found = write("conv", read(message([1.0, 2], raw=False)), Answer({"logits": logits, "classes": np.array([1])}))
    assert (found.model_name, found.model_version, found.id) == ("conv", "1", "seven")
    assert [(one.name, one.datatype, list(one.shape)) for one in found.outputs] == [
        ("logits", "FP32", [1, 2]),
        ("classes", "INT64", [1]),
    ]
    assert np.frombuffer(found.raw_output_contents[0], "<f4").tolist() == [1.5, 2]
    assert np.frombuffer(found.raw_output_contents[1], "<i8").tolist() == [1]


async def call(channel, method, request, response, **fields):
    known = messages()
    ask = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=known[request].SerializeToString,
        response_deserializer=known[response].FromString,
    )
    metadata = fields.pop("metadata", None)
    return await ask(fields.pop("message", None) or known[request](**fields), metadata=metadata)


@pytest.mark.parametrize("everything", [False, True])
def test_a_server_answers_who_may_ask(everything):
    async def work():
        async with serving() as service:
            server = make_server(Local(service), Gate(TOKEN, everything), 100_000)
            port = bind(server, "127.0.0.1", 0, None, None)
            await server.start()
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                x = batches(1, size=2)[0]
                asked = message(x.numpy(), shape=tuple(x.shape))
                infer = ("ModelInfer", "ModelInferRequest", "ModelInferResponse")
                found = await call(channel, *infer, message=asked, metadata=metadata)
                assert [one.name for one in found.outputs] == ["logits", "probabilities", "classes"]
                ready = ("ModelReady", "ModelReadyRequest", "ModelReadyResponse")
                assert (await call(channel, *ready, name="conv", metadata=metadata)).ready
                for fields, code in (
                    ({"name": "other", "metadata": metadata}, grpc.StatusCode.NOT_FOUND),
                    ({"name": "conv"}, grpc.StatusCode.UNAUTHENTICATED if everything else None),
                ):
                    if code is None:
                        assert (await call(channel, *ready, **fields)).ready
                        continue
                    with pytest.raises(grpc.aio.AioRpcError) as error:
                        await call(channel, *ready, **fields)
                    assert error.value.code() == code
                bad = message(x.numpy()[:, :2], shape=(2, 2, 8, 8))
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call(channel, *infer, message=bad, metadata=metadata)
                assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
                assert "Expected shape" in error.value.details()
                assert service.journal.errors == 1
            with pytest.raises(SettingError, match=f"free address for gRPC, but 127.0.0.1:{port} cannot be used"):
                bind(make_server(Local(service), Gate(TOKEN, everything), 1000), "127.0.0.1", port, None, None)
            await server.stop(None)

    asyncio.run(work())
