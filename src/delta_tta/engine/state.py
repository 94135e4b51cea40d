"""Saving and restoring what adaptation changed: kilobytes, not the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import StateError
from ..norms.moving import MovingAverage
from ..options import OptimizerOptions
from ..postprocess.base import Filter
from ..recipe import Recipe
from ..registry import SETTINGS
from ..settings import Settings
from ..tensors import follow
from .accuracy import AccuracyEstimator
from .digests import checksum
from .schedules import Every
from .step import Updater

OPTIMIZER_STATE = {"adam": {"step", "exp_avg", "exp_avg_sq"}, "sgd": {"momentum_buffer"}}
FORMAT = "delta-tta state 6"
HARMLESS = {"background", "sync", "guard", "compile", "layout", "memory", "estimate"}
"""Settings that do not change what a state means, so it may travel between their values."""


def capture(updater: Updater, schedule: Every) -> dict[str, Any]:
    """Copy everything that reset() would undo."""
    optimizer = updater.optimizer.state if updater.optimizer is not None else {}
    return {
        "model": updater.adapted.architecture,
        "classes": updater.classes,
        "updates": updater.updates,
        "parameters": {name: p.detach().clone() for name, p in updater.adapted.parameters.items()},
        "statistics": {name: averages for name, norm in _averages(updater).items() if (averages := norm.remembered())},
        "optimizer": {name: _copied(optimizer[p]) for name, p in updater.adapted.parameters.items() if p in optimizer},
        "objective": _copied(updater.objective_memory),
        "reweighting": _copied(updater.reweighting_memory),
        "answer": {} if updater.postprocess is None else _copied(updater.postprocess.memory),
        "shares": {} if updater.shares is None else updater.shares.remembered(),
        "fisher": {} if updater.objective is None else _copied(updater.objective.fisher),
        "cache": None if schedule.cache is None else schedule.cache.clone(),
    }


def seal(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state with a checksum of all else in it."""
    content = {key: value for key, value in state.items() if key != "checksum"}
    return {**content, "checksum": checksum(content)}


def check_filter(state: Mapping[str, Any], own: Filter | None) -> None:
    """Raise unless what a filter remembers fits this adapter's."""
    try:
        fits = not state["filter"] if own is None else own.fits(state["filter"], state["classes"])
    except (KeyError, AttributeError, TypeError) as error:
        raise StateError(f"The state is damaged: {type(error).__name__}: {error}.") from error
    if not fits:
        raise StateError("The state is damaged: what its filter remembers makes no sense.")


def check_accuracy(state: Mapping[str, Any], own: AccuracyEstimator | None) -> None:
    """Raise unless what an estimator remembers makes sense; an adapter without one has no use for it."""
    try:
        fits = own is None or own.fits(state.get("accuracy", {}), state["classes"])
    except (KeyError, AttributeError, TypeError) as error:
        raise StateError(f"The state is damaged: {type(error).__name__}: {error}.") from error
    if not fits:
        raise StateError("The state is damaged: what it says of the accuracy makes no sense.")


def check_whole(state: Any) -> None:
    """Raise unless the state, of this format or a later one, is as it was sealed."""
    found = state.get("format") if isinstance(state, Mapping) else type(state).__name__
    sealed = isinstance(state, Mapping) and "checksum" in state
    if not sealed and found != FORMAT:
        raise _of_another_format(found)
    try:
        expected, came = state.get("checksum"), seal(state)["checksum"]
    except Exception as error:  # content that was never in a state can raise anything
        raise StateError(f"The state is damaged: {type(error).__name__}: {error}; load an intact copy.") from error
    if expected != came:
        raise StateError(
            f"Expected a state with checksum {str(expected)[:16]}…, but its content has {came[:16]}…: it was damaged "
            "or changed after it was saved; load an intact copy."
        )


def _of_another_format(found: object) -> StateError:
    old = isinstance(found, str) and found.startswith(FORMAT.rstrip("0123456789"))
    hint = " States of other versions do not fit: adapt from the source model again." if old else ""
    return StateError(f"Expected a state saved by an adapter ({FORMAT!r}), but found {found!r}.{hint}")


def check(state: Mapping[str, Any], recipe: Recipe, settings: Settings, updater: Updater) -> None:
    """Raise unless the state is whole and was saved by an adapter like this one."""
    check_whole(state)
    if state.get("format") != FORMAT:
        raise _of_another_format(state.get("format"))
    try:
        _check_origin(state, recipe, settings)
        if state["model"] != updater.adapted.architecture:
            raise StateError(
                f"Expected a state of this model ({updater.adapted.architecture}), but it was saved for another model "
                f"({state['model']}); load it into an adapter around that one."
            )
        _check_fit(state, updater)
    except (KeyError, AttributeError, TypeError) as error:
        raise StateError(f"The state is damaged: {type(error).__name__}: {error}.") from error


def _check_origin(state: Mapping[str, Any], recipe: Recipe, settings: Settings) -> None:
    if state["method"] != str(recipe):
        raise StateError(
            f"The state was saved by method {state['method']!r}, but this adapter runs '{recipe}'; "
            f"make one with adapt(model, {state['method']!r})."
        )
    mine, usual, theirs = settings.of(recipe.uses), Settings().of(recipe.uses), dict(state["settings"])
    theirs |= dict(theirs.pop("extra", ()))  # where older states keep some; they also name settings of other methods
    theirs = {**usual, **{key: value for key, value in theirs.items() if key in mine or key not in SETTINGS}}
    differ = [key for key in theirs if key not in HARMLESS and theirs[key] != mine.get(key)]
    if differ:
        listed = ", ".join(f"{key}={theirs[key]!r} (here {mine.get(key)!r})" for key in differ)
        raise StateError(f"The state was saved with other settings: {listed}. Make the adapter with the same.")


def _check_fit(state: Mapping[str, Any], updater: Updater) -> None:
    """Names and shapes must be this model's."""
    shapes = {name: p.shape for name, p in updater.adapted.parameters.items()}
    averages = _averages(updater)
    fits = (
        {name: p.shape for name, p in state["parameters"].items()} == shapes
        and all(
            name in shapes
            and values.keys() == OPTIMIZER_STATE[updater.settings.options(OptimizerOptions).optimizer]
            and all(key == "step" or value.shape == shapes[name] for key, value in values.items())
            for name, values in state["optimizer"].items()
        )
        and all(name in averages and averages[name].fits(kept) for name, kept in state["statistics"].items())
    )
    if not fits:
        raise StateError("The state's layers have other names or sizes: it was saved for another model.")
    cache = state["cache"]
    counts = all(isinstance(state.get(key, 0), int) for key in ("step", "samples", "updates"))
    counts = counts and isinstance(state["classes"], (int, type(None)))
    if not counts or not all(
        _memory_fits(state[part], state["classes"], shapes) for part in ("objective", "reweighting", "answer")
    ):
        raise StateError("The state is damaged: its counts or class frequencies make no sense.")
    shares = state["shares"]
    if shares if updater.shares is None else not updater.shares.fits(shares, state["classes"]):
        raise StateError("The state is damaged: what it says of the shares makes no sense.")
    measured = updater.objective is not None and updater.objective.needs_source
    if {name: f.shape for name, f in state["fisher"].items()} != (shapes if measured else {}):
        raise StateError("The state is damaged: its Fisher information belongs to other parameters.")
    guard = state["guard"]
    if guard and (guard.keys() != {"counts", "good"} or len(guard["counts"]) != 6):
        raise StateError("The state is damaged: what its guard remembers makes no sense.")
    if cache is not None and not isinstance(cache, Tensor):
        raise StateError("The state is damaged: its cached samples are not a tensor.")


def _memory_fits(memory: dict[str, Tensor], classes: int, shapes: dict[str, torch.Size]) -> bool:
    """Whether the state of the components fits this model; that of other packages' components must be tensors."""
    ours = {
        "z": (classes,),
        "average": (classes,),
        "counts": (classes,),
        "agreed": (classes,),
        "weighed": (classes,),
        "step": (),
        "loss": (),
        "variance": (),
    }
    of_parameters = (
        {key.removeprefix(prefix): value.shape for key, value in memory.items() if key.startswith(prefix)}
        for prefix in ("teacher.", "hidden.")
    )
    return all(
        isinstance(value, Tensor) and value.shape == ours.get(key, value.shape) for key, value in memory.items()
    ) and all(not kept or (kept == shapes and "step" in memory) for kept in of_parameters)


def restore(state: Mapping[str, Any], updater: Updater, schedule: Every) -> None:
    """Write a checked state into an updater that was just reset."""
    like = next(updater.adapted.model.parameters(), torch.empty(0))

    def to_model(x: Tensor) -> Tensor:
        return x.to(like.device, like.dtype if x.is_floating_point() else x.dtype)

    parameters = updater.adapted.parameters
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(state["parameters"][name])
    averages = _averages(updater)
    for name, pair in state["statistics"].items():
        averages[name].recall({key: follow(to_model, value).clone() for key, value in pair.items()})
    if updater.optimizer is not None:
        for name, values in state["optimizer"].items():
            updater.optimizer.state[parameters[name]] = _copied(values)
    updater.objective_memory = _copied(state["objective"])
    if updater.objective is not None:
        updater.objective.fisher = _copied(state["fisher"])
    updater.reweighting_memory = _copied(state["reweighting"])
    if updater.postprocess is not None:
        updater.postprocess.memory = _copied(state["answer"])
    if updater.shares is not None:
        updater.shares.recall(state["shares"])
    schedule.cache = None if state["cache"] is None else state["cache"].clone()
    updater.classes = state["classes"]
    updater.updates = state.get("updates", 0)  # older states have none
    move(to_model, updater, schedule)


def move(fn: Callable[[Tensor], Tensor], updater: Updater, schedule: Every) -> None:
    """Let every tensor that no module owns follow the model, whose parameters have been moved by fn."""
    of_answer = {} if updater.postprocess is None else updater.postprocess.memory
    for memory in (updater.objective_memory, updater.reweighting_memory, of_answer):
        memory.update({key: follow(fn, value) for key, value in memory.items()})
    for p, values in updater.optimizer.state.items() if updater.optimizer is not None else ():
        for key, value in values.items():
            if isinstance(value, Tensor):
                values[key] = value.to(p.device, value.dtype if key == "step" else p.dtype)
    if schedule.cache is not None:
        schedule.cache = fn(schedule.cache)


def _averages(updater: Updater) -> dict[str, MovingAverage]:
    return {name: norm for name, norm in updater.adapted.norms.items() if isinstance(norm, MovingAverage)}


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in values.items()}
