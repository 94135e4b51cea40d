"""A request and an answer, however they came: what REST and gRPC have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError

Array = npt.NDArray[Any]

INPUT = "input"
OUTPUTS = {"logits": "FP32", "probabilities": "FP32", "classes": "INT64"}
DTYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP16": np.dtype("<f2"),
    "UINT8": np.dtype("u1"),
    "INT64": np.dtype("<i8"),
}
LONGEST_NAME = 64
"""Bytes of the name of a stream: it becomes the name of a folder."""


class RefusedError(Exception):
    """A request that cannot be served; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Inference:
    """One request for answers.

    Attributes:
        datatype: of the input, as the protocol names it.
        shape: of the input.
        content: the values, (n,) or of any shape that has as many; of BYTES a list.
        identity: what the client calls the request; it comes back.
        stream: which camera or video it is of.
        learn: whether the model may learn from it.
        reset: whether all that was learnt from the stream is to be forgotten before.
        outputs: which outputs are asked for, and whether each is to come in binary; empty: all of them.
        binary: whether outputs come in binary where they do not say.
    """

    datatype: str
    shape: tuple[int, ...]
    content: Array | list[bytes]
    identity: str = ""
    stream: str = ""
    learn: bool = True
    reset: bool = False
    outputs: Mapping[str, bool | None] = field(default_factory=dict)
    binary: bool = False


@dataclass(frozen=True)
class Answer:
    """The outputs by name, in the order that was asked for."""

    outputs: dict[str, Array]


def options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request that delta-tta knows, checked; others belong to the protocol."""
    found: dict[str, Any] = {}
    for name in ("learn", "reset"):
        value = parameters.get(name)
        if value is not None:
            if not isinstance(value, bool):
                raise InputError(f"Expected the parameter `{name}` to be true or false, but got {value!r:.60}.")
            found[name] = value
    if parameters.get("stream") is not None:
        found["stream"] = stream_name(parameters["stream"])
    return found


def stream_name(value: Any) -> str:
    """Return the name of a stream, checked."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.encode()) <= LONGEST_NAME:
        raise InputError(
            f"Expected the parameter `stream` to be a printable text of 1 to {LONGEST_NAME} bytes, but got "
            f"{value!r:.80}."
        )
    return value


def asked(names: list[tuple[str, bool | None]]) -> dict[str, bool | None]:
    """Return the outputs asked for, checked."""
    for name, _ in names:
        if name not in OUTPUTS:
            raise InputError(f"Expected the outputs to be among {', '.join(OUTPUTS)}, but got {name!r:.60}.")
    return dict(names)


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of an input, checked."""
    fine = isinstance(value, (list, tuple)) and all(type(n) is int and 0 <= n < 2**31 for n in value)
    if not fine or not 1 <= len(value) <= 8:
        raise InputError(f"Expected `shape` of the input to be a list of sizes, but got {value!r:.80}.")
    return tuple(value)


def from_raw(datatype: str, raw: bytes | memoryview) -> Array | list[bytes]:
    """Return the values of a tensor in binary; BYTES are texts, each led by its length in four bytes."""
    if datatype in DTYPES:
        kind = DTYPES[datatype]
        if len(raw) % kind.itemsize:
            raise InputError(f"Expected {kind.itemsize} bytes for each {datatype}, but got {len(raw)} bytes.")
        return np.frombuffer(raw, kind)
    if datatype != "BYTES":
        raise unknown_type(datatype)
    elements: list[bytes] = []
    place = 0
    while place < len(raw):
        length = int.from_bytes(raw[place : place + 4], "little")
        element = bytes(raw[place + 4 : place + 4 + length])
        if place + 4 > len(raw) or len(element) < length:
            raise InputError(f"Expected {length} bytes of element {len(elements)}, but the content ends before.")
        elements.append(element)
        place += 4 + length
    return elements


def unknown_type(datatype: Any) -> InputError:
    """Return the error for a datatype that cannot be an image."""
    return InputError(
        f"Expected an input of FP32 or FP16 (as the model takes it), UINT8 (0 to 255) or BYTES (JPEG or PNG), but got "
        f"{datatype!r:.40}."
    )
