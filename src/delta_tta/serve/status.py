"""The answer to GET /status, and what the control routes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..errors import InputError
from ..files import json_safe
from .inference import RefusedError, stream_name
from .service import Service
from .streams import Slot


def status(service: Service, locked: bool) -> dict[str, Any]:
    """Return the state of the service for the page; numbers that JSON cannot hold are null."""
    slots = [place.slot for place in service.places.values()]
    now = time.time()
    return json_safe(  # type: ignore[no-any-return]
        {
            "model": {
                "name": service.name,
                "method": service.method,
                "words": service.words,
                "network": service.network,
                "classes": service.classes,
            },
            "now": now,
            "learning": service.learning and not (slots and all(slot.frozen for slot in slots)),
            "locked": locked,
            **service.journal.as_dict(),
            "checkpoint": None if service.options.folder is None else checkpoint(slots, now),
            "streams": [
                {"id": slot.identity, "samples": slot.samples, "batches": slot.batches, "age": now - slot.seen}
                for slot in slots
            ],
        }
    )


def checkpoint(slots: list[Slot], now: float) -> dict[str, Any]:
    """Return how well the states are saved: of several, the oldest."""
    saved = [slot.saved for slot in slots if slot.saved is not None]
    steps = [slot.saved_step for slot in slots if slot.saved is not None and slot.saved_step is not None]
    errors = [str(slot.error) for slot in slots if slot.error is not None]
    return {
        "age": now - min(saved) if saved else None,
        "step": max(steps, default=None),
        "failures": sum(slot.failures for slot in slots),
        "error": errors[0] if errors else None,
    }


def _snapshot(service: Service, slot: Slot) -> str:
    return f"Snapshot of {slot.identity} taken, {slot.snapshot()}"


def _rollback(service: Service, slot: Slot) -> str:
    return f"{slot.identity} went back to {slot.rollback()}"


def _reset(service: Service, slot: Slot) -> str:
    slot.reset()
    return f"{slot.identity} is the source model again"


def _freeze(service: Service, slot: Slot) -> str:
    service.frozen.add(slot.identity)
    slot.frozen = True
    return f"{slot.identity} learns no more"


def _learn(service: Service, slot: Slot) -> str:
    service.frozen.discard(slot.identity)
    slot.frozen = False
    return f"{slot.identity} learns again"


ACTS: dict[str, Callable[[Service, Slot], str]] = {
    "snapshot": _snapshot,
    "rollback": _rollback,
    "reset": _reset,
    "freeze": _freeze,
    "learn": _learn,
}


async def control(service: Service, what: str, message: Any) -> str:
    """Do what a control route asks for and return it in words; `message` is the body, None where it is empty."""
    if what not in ACTS:
        raise RefusedError(404, f"Expected one of {', '.join(ACTS)} behind /control/, but got {what!r:.40}.")
    if message is not None and not isinstance(message, dict):
        raise InputError(f"Expected a JSON object or no body, but got {type(message).__name__}.")
    stream = (message or {}).get("stream")
    if stream is not None:
        stream = stream_name(stream)
    if stream == "shared" and service.options.streams == "shared":  # as the status names it
        stream = None
    if stream is None and what in ("freeze", "learn"):
        service.learning = what == "learn"
        done = "The service learns no more" if what == "freeze" else "The service learns again"
        if what == "learn":
            service.frozen.clear()
            for place in service.places.values():
                place.slot.frozen = False
    else:
        done = await service.control(stream, lambda slot: ACTS[what](service, slot))
    service.journal.event(what, done)
    return done
