"""The Open Inference Protocol over REST: JSON, with tensors in it or in binary behind it."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import json_safe
from .inference import (
    DTYPES,
    INPUT,
    OUTPUTS,
    Answer,
    Array,
    Inference,
    asked,
    from_raw,
    options,
    shape_of,
    unknown_type,
)

HEADER = "inference-header-content-length"
"""Says how many bytes the JSON has, where binary tensors follow it."""
VERSION = "1"


def read(body: bytes, header: str | None) -> Inference:
    """Return the request in a body; `header` is the value of `HEADER`, if it was sent."""
    length = len(body)
    if header is not None:
        if not header.isdecimal() or int(header) > len(body):
            raise InputError(
                f"Expected the length of the JSON, at most {len(body)}, in {HEADER}, but got {header!r:.40}."
            )
        length = int(header)
    try:
        message = json.loads(body[:length])
    except (ValueError, RecursionError) as error:
        raise InputError(f"Expected a request in JSON, but got {length} bytes that are not ({error}).") from None
    if not isinstance(message, dict):
        raise InputError(f"Expected a JSON object, but got {type(message).__name__}.")
    given = _objects(message.get("inputs"), "inputs")
    if len(given) != 1 or given[0].get("name") != INPUT:
        names = [str(one.get("name"))[:40] for one in given[:8]]
        raise InputError(f"Expected one input named {INPUT!r}, but got {names}.")
    one, whole = given[0], _parameters(message)
    size, datatype, shape = _parameters(one).get("binary_data_size"), one.get("datatype"), shape_of(one.get("shape"))
    if datatype not in ("FP32", "FP16", "UINT8", "BYTES"):
        raise unknown_type(datatype)
    rest = len(body) - length
    if (size if size is not None else 0) != rest or isinstance(size, bool):
        raise InputError(f"Expected {size or 0} bytes behind the JSON, as `binary_data_size` says, but got {rest}.")
    wanted = [
        (one.get("name"), _parameters(one).get("binary_data"))
        for one in _objects(message.get("outputs", []), "outputs")
    ]
    return Inference(
        datatype,
        shape,
        _listed(datatype, one.get("data")) if size is None else from_raw(datatype, memoryview(body)[length:]),
        identity=str(message.get("id", "")),
        outputs=asked([(str(name), bool(binary) if binary is not None else None) for name, binary in wanted]),
        binary=bool(whole.get("binary_data_output", False)),
        **options(whole),
    )


def write(name: str, request: Inference, answer: Answer) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of an answer."""
    described, binary = [], []
    for output, values in answer.outputs.items():
        here: dict[str, Any] = {"name": output, "datatype": OUTPUTS[output], "shape": list(values.shape)}
        chosen = request.outputs.get(output)
        if request.binary if chosen is None else chosen:
            raw = values.astype(DTYPES[OUTPUTS[output]], copy=False).tobytes()
            here["parameters"] = {"binary_data_size": len(raw)}
            binary.append(raw)
        else:
            here["data"] = json_safe(values.ravel().tolist())
        described.append(here)
    message: dict[str, Any] = {"model_name": name, "model_version": VERSION, "outputs": described}
    if request.identity:
        message["id"] = request.identity
    text = json.dumps(message, allow_nan=False).encode()
    if not binary:
        return text, {"content-type": "application/json"}
    return b"".join([text, *binary]), {"content-type": "application/octet-stream", HEADER: str(len(text))}


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InputError(f"Expected `{name}` to be a list of objects, but got {value!r:.60}.")
    return value


def _parameters(holder: dict[str, Any]) -> dict[str, Any]:
    found = holder.get("parameters", {})
    if not isinstance(found, dict):
        raise InputError(f"Expected `parameters` to be an object, but got {found!r:.60}.")
    return found


def _listed(datatype: str, data: Any) -> Array | list[bytes]:
    """Return the values that stand in the JSON; encoded images are base64 there."""
    if not isinstance(data, list):
        raise InputError(f"Expected `data` of the input to be a list, but got {type(data).__name__}.")
    if datatype == "BYTES":
        try:
            return [base64.b64decode(text, validate=True) for text in data]
        except (binascii.Error, TypeError, ValueError) as error:
            raise InputError(
                f"Expected images in base64 where BYTES stand in JSON, but got others ({error})."
            ) from None
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):
        values = np.empty(1, object)
    kinds = "iu" if datatype == "UINT8" else "iuf"
    if values.size and values.dtype.kind not in kinds:
        raise InputError(f"Expected numbers as `data` of {datatype}, in lists of equal length, but got others.")
    if datatype == "UINT8" and values.size and not (values.min() >= 0 and values.max() <= 255):
        raise InputError(f"Expected UINT8 from 0 to 255, but got {values.min()} to {values.max()}.")
    with np.errstate(over="ignore"):  # infinity is refused later, as everywhere
        return values.astype(DTYPES[datatype])
