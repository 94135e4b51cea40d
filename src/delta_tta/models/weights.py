"""Weights from files: safetensors, or torch checkpoints read as plain tensors; nothing in a file is ever run."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DataError, ModelError, install
from ..normalization import Normalisation

NESTS = ("state_dict", "model_state_dict", "model", "net", "ema", "params")
"""Under which key checkpoints hide the weights."""
PREFIXES = ("module.", "model.", "_orig_mod.")
"""What wrappers (DataParallel, normalising wrappers, torch.compile) put before the names."""
SCALES = frozenset({"mu", "sigma", "mean", "std"})
"""Buffers that carry the input normalisation in checkpoints of wrapped models."""


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return (weights by name, card) of a .safetensors file or a torch checkpoint; the card is empty for the latter."""
    place = Path(path)
    if not place.is_file():
        raise DataError(f"Expected weights at {place}, but there is no such file.")
    try:
        if place.suffix == ".safetensors":
            return _read_safetensors(place)
        check_archive(place)
        return _unwrapped(torch.load(place, map_location="cpu", weights_only=True)), {}
    except ImportError as error:
        raise ImportError(f"Weights in safetensors need the package safetensors: {install('cli')}.") from error
    except DataError:
        raise
    except Exception as error:  # a damaged file can raise anything
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{place} is not an intact weights file that can be read without running code ({first}). Save the state "
            "dict alone, with torch.save(model.state_dict()) or as safetensors."
        ) from None


def _read_safetensors(place: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    from safetensors import safe_open

    with safe_open(place, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118 - no dict


def check_archive(place: Path) -> None:
    """Compare the tensors of a torch checkpoint with the checksums beside them, which torch.load does not look at."""
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            # what is marked as a folder (bit 4), torch.load leaves unread and hands out as it found the memory
            folders = [entry.filename for entry in archive.infolist() if entry.external_attr & 16]
            changed = next(iter(folders), None) or archive.testzip()
        if changed is not None:
            raise ValueError(f"{changed} does not match its checksum")


def _unwrapped(content: Any) -> dict[str, Tensor]:
    while isinstance(content, Mapping):
        inner = next((content[key] for key in NESTS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise DataError("Expected a state dict in the checkpoint, alone or under one of " + ", ".join(NESTS) + ".")
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def outputs_in(weights: Mapping[str, Tensor], model: nn.Module) -> int | None:
    """Return how many classes weights of such a model are for, the rows of its last linear layer; None: not said."""
    name = next((name for name, module in reversed([*model.named_modules()]) if isinstance(module, nn.Linear)), None)
    found = _stripped(weights, model.state_dict()).get(f"{name}.weight")
    return None if found is None else len(found)


def fits(model: nn.Module, weights: Mapping[str, Tensor]) -> bool:
    """Whether weights are of such a model, with any number of classes."""
    own = model.state_dict()
    found = _stripped(weights, own)
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    body = {k: v.shape for k, v in own.items() if not k.endswith("num_batches_tracked")}
    fixed = {k: shape for k, shape in body.items() if k.rpartition(".")[0] not in linear}
    return body.keys() <= found.keys() <= own.keys() and all(found[k].shape == shape for k, shape in fixed.items())


def load_weights(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Load weights into a model, all of them or an error; return the file's card.

    Prefixes of wrappers are taken off, and normalisation buffers the model does not have are left out. What the card
    says of the classes and the normalisation travels with the model.
    """
    weights, card = read_weights(path)
    fill(model, weights, path)
    mark(model, card, path)
    return card


def mark(model: nn.Module, card: Mapping[str, str], path: str | Path) -> None:
    """Let what a card says of the classes and the normalisation travel with the model."""
    marked: Any = model
    if (names := card_classes(card)) is not None:
        marked.class_names = names
    if (scale := card_normalisation(card, path)) is not None:
        marked.card_normalisation = scale


def fill(model: nn.Module, weights: Mapping[str, Tensor], source: str | Path, new_head: bool = False) -> list[str]:
    """Load weights into a model, all of them or an error; `source` names them in it.

    With `new_head` one layer, the last, may have another number of outputs: it is not loaded, and the names of its
    weights are returned.
    """
    own = model.state_dict()
    weights = _stripped(weights, own)
    counters = {key for key in own if key.endswith("num_batches_tracked")}  # old checkpoints lack them
    missing, unknown = sorted(set(own) - set(weights) - counters), sorted(set(weights) - set(own))
    other = [key for key in own if key in weights and weights[key].shape != own[key].shape]
    head = other if new_head and _is_head(own, weights, other) else []
    shapes = [f"{k} {tuple(weights[k].shape)} for {tuple(own[k].shape)}" for k in other if k not in head]
    if missing or unknown or shapes:
        parts = [("missing", missing), ("unknown", unknown), ("of another shape", shapes)]
        wrong = "; ".join(f"{len(names)} {what}, such as {names[0]}" for what, names in parts if names)
        raise ModelError(f"The weights in {source} do not fit {type(model).__name__}: {wrong}.")
    model.load_state_dict({**{key: own[key] for key in counters}, **weights, **{key: own[key] for key in head}})
    return head


def _stripped(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the model's own names, without what a wrapper added."""
    for prefix in PREFIXES:
        if weights and not set(weights) & set(own) and all(k.startswith(prefix) or k in SCALES for k in weights):
            weights = {key.removeprefix(prefix): value for key, value in weights.items()}
    return {key: value for key, value in weights.items() if key in own or key not in SCALES}


def _is_head(own: Mapping[str, Tensor], weights: Mapping[str, Tensor], other: list[str]) -> bool:
    """Whether these are the weights of one layer, and differ in the number of its outputs alone."""
    layers = {key.rpartition(".")[0] for key in other}
    return len(layers) == 1 and all(own[key].shape[1:] == weights[key].shape[1:] for key in other)


def weights_file(model: nn.Module, card: Mapping[str, str]) -> bytes:
    """Return a .safetensors file of a model and its card; the same model and card give the same bytes."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise ImportError(f"Weights in safetensors need the package safetensors: {install('cli')}.") from error
    content = save({key: value.detach().cpu().clone().contiguous() for key, value in model.state_dict().items()})
    length = int.from_bytes(content[:8], "little")
    # safetensors writes a card in another order each time, so it is put in here
    head = {"__metadata__": dict(card), **json.loads(content[8 : 8 + length])}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def card_classes(card: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the names of the classes, in the order of the outputs; None where a card does not say."""
    try:
        names = json.loads(card.get("classes", "null"))
    except ValueError:
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def card_normalisation(card: Mapping[str, str], source: str | Path) -> Normalisation | None:
    """Return how the inputs were normalised in training; None where a card does not say."""
    if not {"mean", "std"} <= set(card):
        return None
    try:
        return Normalisation(numbers(card["mean"]), numbers(card["std"]), "the file's card")  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DataError(f"{source}: expected three numbers as mean and as std in its card ({error}).") from None


def numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a card's entry, such as "[0.5, 0.5, 0.5]"."""
    return tuple(float(value) for value in json.loads(text))
