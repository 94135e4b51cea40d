"""The messages of the Open Inference Protocol over gRPC, made from their numbers: no generated code to keep in step."""

from __future__ import annotations

import functools
from typing import Any

SERVICE = "inference.GRPCInferenceService"
METHODS = {
    "ServerLive": ("ServerLiveRequest", "ServerLiveResponse"),
    "ServerReady": ("ServerReadyRequest", "ServerReadyResponse"),
    "ModelReady": ("ModelReadyRequest", "ModelReadyResponse"),
    "ServerMetadata": ("ServerMetadataRequest", "ServerMetadataResponse"),
    "ModelMetadata": ("ModelMetadataRequest", "ModelMetadataResponse"),
    "ModelInfer": ("ModelInferRequest", "ModelInferResponse"),
}

_TENSOR = "name string, datatype string, shape int64*, parameters Parameters*, contents InferTensorContents"
_MODEL = "name string, version string"
_CONTENTS = (
    "bool_contents bool*, int_contents int32*, int64_contents int64*, uint_contents uint32*, "
    "uint64_contents uint64*, fp32_contents float*, fp64_contents double*, bytes_contents bytes*"
)
MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live bool",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready bool",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "ready bool",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name string, version string, extensions string*",
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse.TensorMetadata": "name string, datatype string, shape int64*",
    "ModelMetadataResponse": (
        "name string, versions string*, platform string, inputs ModelMetadataResponse.TensorMetadata*, "
        "outputs ModelMetadataResponse.TensorMetadata*"
    ),
    "InferParameter": (
        "bool_param bool, int64_param int64, string_param string, double_param double, uint64_param uint64"
    ),
    "InferTensorContents": _CONTENTS,
    "ModelInferRequest.InferInputTensor": _TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": "name string, parameters Parameters*",
    "ModelInferRequest": (
        "model_name string, model_version string, id string, parameters Parameters*, "
        "inputs ModelInferRequest.InferInputTensor*, outputs ModelInferRequest.InferRequestedOutputTensor*, "
        "raw_input_contents bytes*"
    ),
    "ModelInferResponse.InferOutputTensor": _TENSOR,
    "ModelInferResponse": (
        "model_name string, model_version string, id string, parameters Parameters*, "
        "outputs ModelInferResponse.InferOutputTensor*, raw_output_contents bytes*"
    ),
}
"""Fields by message, in the order of their numbers; * means many, `Parameters` a mapping to InferParameter."""

ONEOF = "parameter_choice"


@functools.cache
def messages() -> dict[str, Any]:
    """Return the classes of all messages by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="delta_tta/inference.proto", package="inference", syntax="proto3")
    made: dict[str, Any] = {}
    for name in sorted(MESSAGES, key=lambda one: (one.count("."), one)):  # the outer ones first
        outer, _, inner = name.rpartition(".")
        made[name] = (made[outer].nested_type if outer else file.message_type).add(name=inner)
    for name, fields in MESSAGES.items():
        _fill(made[name], name, fields)
    pool = descriptor_pool.DescriptorPool()  # apart from the default one, where a client may have the same names
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in MESSAGES}


def _fill(message: Any, name: str, fields: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    for number, words in enumerate(filter(None, fields.split(", ")), 1):
        field, kind = words.split(" ")
        many, kind = kind.endswith("*"), kind.rstrip("*")
        if kind == "Parameters":
            kind = f"{name}.ParametersEntry"
            entry = message.nested_type.add(name="ParametersEntry")
            entry.options.map_entry = True
            _fill(entry, kind, "key string, value InferParameter")
        own = getattr(Field, f"TYPE_{kind.upper()}", None)
        added = message.field.add(
            name=field,
            number=number,
            label=Field.LABEL_REPEATED if many else Field.LABEL_OPTIONAL,
            type=Field.TYPE_MESSAGE if own is None else own,
            type_name=f".inference.{kind}" if own is None else None,
        )
        if name == "InferParameter":
            added.oneof_index = 0
    if name == "InferParameter":
        message.oneof_decl.add(name=ONEOF)
