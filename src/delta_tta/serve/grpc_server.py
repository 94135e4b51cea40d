"""The Open Inference Protocol over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from ..errors import InputError, SettingError
from . import protocol
from .app import SERVER, explained
from .inference import DTYPES, INPUT, OUTPUTS, Answer, Inference, RefusedError, asked, from_raw, options, unknown_type
from .messages import METHODS, ONEOF, SERVICE, messages
from .security import Gate
from .served import Served

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    503: grpc.StatusCode.UNAVAILABLE,
}
FIELDS = {"FP32": "fp32_contents", "UINT8": "uint_contents", "BYTES": "bytes_contents"}
"""Where values stand that are not raw; the protocol has no field for FP16."""


def read(message: Any) -> Inference:
    """Return the request in a ModelInferRequest."""
    if len(message.inputs) != 1 or message.inputs[0].name != INPUT:
        raise InputError(
            f"Expected one input named {INPUT!r}, but got {[one.name[:40] for one in message.inputs[:8]]}."
        )
    one, raw = message.inputs[0], message.raw_input_contents
    shape = tuple(one.shape)
    if not 1 <= len(shape) <= 8 or not all(0 <= n < 2**31 for n in shape):
        raise InputError(f"Expected `shape` of the input to be a list of sizes, but got {list(shape)[:9]}.")
    if one.datatype not in (*FIELDS, "FP16"):
        raise unknown_type(one.datatype)
    if len(raw) > 1:
        raise InputError(f"Expected one raw content for one input, but got {len(raw)}.")
    if raw:
        content: Any = from_raw(one.datatype, raw[0])
    elif one.datatype not in FIELDS:
        raise InputError(f"Expected {one.datatype} as raw content, but got none.")
    else:
        values = getattr(one.contents, FIELDS[one.datatype])
        if one.datatype == "UINT8" and max(values, default=0) > 255:
            raise InputError(f"Expected UINT8 from 0 to 255, but got {max(values)}.")
        content = list(values) if one.datatype == "BYTES" else np.array(values, DTYPES[one.datatype])
    return Inference(
        one.datatype,
        shape,
        content,
        identity=message.id,
        outputs=asked([(output.name, None) for output in message.outputs]),
        **options({name: _value(parameter) for name, parameter in message.parameters.items()}),
    )


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof(ONEOF)
    return None if chosen is None else getattr(parameter, chosen)


def write(name: str, request: Inference, answer: Answer) -> Any:
    """Return the ModelInferResponse of an answer; all its tensors are raw."""
    message = messages()["ModelInferResponse"](model_name=name, model_version=protocol.VERSION, id=request.identity)
    for output, values in answer.outputs.items():
        kind = OUTPUTS[output]
        message.outputs.add(name=output, datatype=kind, shape=values.shape)
        message.raw_output_contents.append(values.astype(DTYPES[kind], copy=False).tobytes())
    return message


def make_server(service: Served, gate: Gate, most_bytes: int) -> grpc.aio.Server:
    """Return a gRPC server of the service, without an address."""

    def known(request: Any) -> None:
        name = request.model_name if hasattr(request, "model_name") else request.name
        version = request.model_version if hasattr(request, "model_version") else request.version
        if name != service.name or version not in ("", protocol.VERSION):
            raise RefusedError(
                404, f"Expected the model {service.name!r}, version 1, but got {name!r:.60}, {version!r:.20}."
            )

    async def infer(request: Any) -> Any:
        try:
            known(request)
            read_request = await asyncio.to_thread(read, request)
            answer = await service.infer(read_request)
        except Exception as error:
            status, text = explained(error)
            service.refused(status)
            raise RefusedError(status, text) from error
        return await asyncio.to_thread(write, service.name, read_request, answer)

    async def model_ready(request: Any) -> Any:
        known(request)
        return messages()["ModelReadyResponse"](ready=service.ready)

    async def model_metadata(request: Any) -> Any:
        known(request)
        return messages()["ModelMetadataResponse"](**await service.about())

    async def live(_: Any) -> Any:
        return messages()["ServerLiveResponse"](live=True)

    async def ready(_: Any) -> Any:
        return messages()["ServerReadyResponse"](ready=service.ready)

    async def server_metadata(_: Any) -> Any:
        return messages()["ServerMetadataResponse"](**SERVER)

    calls = {
        "ServerLive": live,
        "ServerReady": ready,
        "ServerMetadata": server_metadata,
        "ModelReady": model_ready,
        "ModelMetadata": model_metadata,
        "ModelInfer": infer,
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _guarded(calls[name], gate),
            request_deserializer=messages()[request].FromString,
            response_serializer=messages()[response].SerializeToString,
        )
        for name, (request, response) in METHODS.items()
    }
    limits = [("grpc.max_receive_message_length", most_bytes), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=[*limits, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    return server


def _guarded(call: Callable[[Any], Awaitable[Any]], gate: Gate) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return the call behind the gate, with errors as gRPC tells them."""

    async def guarded(request: Any, context: Any) -> Any:
        if gate.everything and not gate.opens(_authorization(context.invocation_metadata())):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "Expected the metadata `authorization: Bearer TOKEN`.")
        try:
            return await call(request)
        except Exception as error:
            status, text = explained(error)
            await context.abort(CODES.get(status, grpc.StatusCode.INTERNAL), text)

    return guarded


def _authorization(pairs: Iterable[tuple[str, Any]] | None) -> str | None:
    found: Mapping[str, Any] = dict(pairs or ())
    value = found.get("authorization")
    return value if isinstance(value, str) else None


def bind(server: grpc.aio.Server, host: str, port: int, certificate: Path | None, key: Path | None) -> int:
    """Bind the server to an address and return the port; with TLS where a certificate is given."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if certificate is None or key is None:
            return int(server.add_insecure_port(address))
        credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
        return int(server.add_secure_port(address, credentials))
    except RuntimeError as error:
        raise SettingError(f"Expected a free address for gRPC, but {address} cannot be used ({error}).") from None
