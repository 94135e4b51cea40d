"""States in files: written so that none is ever half there, and kept up to date while a service runs."""

from __future__ import annotations

import io
import itertools
import logging
import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from .adapter import Adapter, _never_compiled
from .engine import state as states
from .errors import SettingError, StateError
from .files import write_whole

logger = logging.getLogger("delta_tta")


def save_state(adapter: Adapter, path: str | Path) -> None:
    """Save what an adapter has learnt; at any moment the file is the complete old or the complete new one."""
    _write(adapter.state_dict(), Path(path))


def load_state(adapter: Adapter, path: str | Path) -> None:
    """Load a file that `save_state` or a `Checkpointer` wrote. A file that does not fit changes nothing."""
    adapter.load_state_dict(_read(Path(path)))


class Checkpointer:
    """Saves an adapter's state in a folder every few batches, and resumes from the newest state there.

    One folder serves one stream. Saving never stops the stream: what goes wrong is logged (logger "delta_tta") and
    counted.

    Args:
        folder: where the files are kept; made if it is not there.
        every: batches from one checkpoint to the next; None saves where `save` or `try_save` is called.
        keep: how many of the newest to keep.

    Attributes:
        step: batches answered in all runs with this folder, resets or not; the files are named after it.
        resumed: the file that `attach` went on from; None if there was none.
        failures: how many times saving failed.
        last_error: why the last attempt to save failed; None if it did not.

    Examples:
        >>> import tempfile, torch, delta_tta
        >>> net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 3))
        >>> folder = tempfile.TemporaryDirectory()
        >>> with delta_tta.Checkpointer(folder.name, every=2).attach(delta_tta.adapt(net, "tema")) as checkpoints:
        ...     for _ in range(5):
        ...         _ = checkpoints.adapter(torch.randn(16, 6))
        >>> checkpoints.step
        5
        >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path, every: int | None = 500, keep: int = 3) -> None:
        for name, value in (("every", 1 if every is None else every), ("keep", keep)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise SettingError(f"Expected `{name}` to be an integer of at least 1, but got {value!r}.")
        self.folder = Path(folder).absolute()  # wherever the program goes
        self.every = every
        self.keep = keep
        self.step = 0
        self.resumed: Path | None = None
        self.failures = 0
        self.last_error: Exception | None = None
        self.adapter: Adapter | None = None
        self._hooks: list[Any] = []
        self._due = False
        self._inside: set[int] = set()  # the threads that are answering a batch
        self._lock = threading.RLock()

    def attach(self, adapter: Adapter) -> Checkpointer:
        """Load the newest complete checkpoint into the adapter, and save the adapter from now on.

        Files that are not whole are skipped with a warning and renamed. A checkpoint of another model, method or
        settings raises StateError and changes nothing.
        """
        if not isinstance(adapter, Adapter):
            raise StateError(f"Expected an adapter made by delta_tta.adapt, but got {type(adapter).__name__}.")
        with self._lock:
            if self.adapter is not None:
                raise StateError("This checkpointer has an adapter already; call detach() first.")
            self.folder.mkdir(parents=True, exist_ok=True)
            self.resumed = self._resume(adapter)
            self.step = adapter.signals.step if self.resumed is None else _number(self.resumed)
            for leftover in self.folder.glob(".step-*.tmp"):  # of a process that was killed
                with suppress(OSError):
                    leftover.unlink()
            self.adapter, self._due = adapter, False
            self._hooks = [
                adapter.register_forward_pre_hook(self._begin),
                adapter.register_forward_hook(self._answered, always_call=True),
            ]
        return self

    def detach(self) -> None:
        """Save no more."""
        with self._lock:
            for hook in self._hooks:
                hook.remove()
            self._hooks, self.adapter = [], None
            self._inside.clear()

    def save(self) -> Path:
        """Save now, and raise if that fails."""
        with self._lock:
            if self.adapter is None:
                raise StateError("There is nothing to save: no adapter is attached; call attach() first.")
            try:
                self.adapter.wait()
            finally:  # also where the last update failed: the state is the one before it
                path = self._save(self.adapter.state_dict())
            return path

    def try_save(self) -> bool:
        """Save now and return whether that worked; what goes wrong is logged and counted."""
        with self._lock:
            if self.adapter is None:
                return False
            before, self._due = self.failures, True  # where an update failed, the next batch saves
            self._try_to_save(self.adapter)
            return self.failures == before and not self._due

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Save what is there at the end, and detach."""
        try:
            if threading.get_ident() in self._inside:
                logger.warning("A batch was interrupted and may be half learnt: not saved, the last checkpoint stays.")
            elif self.adapter is not None and error is None:
                self.save()
            elif self.adapter is not None:
                self._try_to_save(self.adapter)
        finally:
            self.detach()

    def __reduce__(self) -> tuple[type[Checkpointer], tuple[Any, ...]]:
        """A copy has no adapter: a copied adapter does not write into the folder of the first."""
        return Checkpointer, (self.folder, self.every, self.keep)

    @_never_compiled
    def _begin(self, adapter: Any, _: Any) -> None:
        if adapter is self.adapter:
            self._inside.add(threading.get_ident())

    @_never_compiled
    def _answered(self, adapter: Any, _: Any, logits: Any) -> None:
        """Called after each batch, with None for logits if it failed; not called where it was interrupted."""
        with self._lock:
            if self.adapter is None or adapter is not self.adapter:
                return
            self._inside.discard(threading.get_ident())
            if logits is not None:
                self.step += 1
                self._due = self._due or (self.every is not None and self.step % self.every == 0)
                if self._due:
                    self._try_to_save(self.adapter)

    def _try_to_save(self, adapter: Adapter) -> None:
        try:
            with adapter._worker.lock:
                if not adapter._worker.settled():
                    return  # the next call raises what went wrong, and the one after it saves
                state = adapter.state_dict()
            self._due = False
            self._save(state)
        except Exception as error:
            self._due = False
            self.failures += 1
            if self.last_error is None:  # once, not at every attempt while a disk is full
                logger.error("Saving a checkpoint in %s failed; the stream goes on unsaved: %s", self.folder, error)
            self.last_error = error

    def _save(self, state: dict[str, Any]) -> Path:
        path = self.folder / f"step-{self.step:09d}.pt"
        _write(state, path)
        self.last_error = None
        for old in [other for other in self._saved() if _number(other) <= self.step][self.keep :]:
            with suppress(OSError):
                old.unlink()
        return path

    def _saved(self) -> list[Path]:
        """Return the checkpoints in the folder, the newest first."""
        names = (path for path in self.folder.iterdir() if re.fullmatch(r"step-\d{9,}\.pt", path.name))
        return sorted(names, key=_number, reverse=True)

    def _resume(self, adapter: Adapter) -> Path | None:
        for path in self._saved():
            try:
                state = _read(path)
            except StateError as error:
                aside = _free(path)
                with suppress(OSError):
                    path.rename(aside)
                logger.warning("Skipped a checkpoint and renamed it to %s: %s", aside.name, error)
                continue
            try:
                adapter.load_state_dict(state)
            except StateError as error:
                raise StateError(
                    f"The checkpoint {path} does not fit. {error} To begin anew, choose another folder."
                ) from error
            return path
        return None


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _free(path: Path) -> Path:
    """Return a name for a damaged file that no other has."""
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in itertools.count())
    return next(name for name in names if not name.exists())


def _read(path: Path) -> dict[str, Any]:
    """Return the whole state in a file; nothing in the file is ever run."""
    if not path.is_file():
        raise StateError(f"Expected a saved state at {path}, but there is no such file.")
    content = io.BytesIO(path.read_bytes())  # an error of the disk is raised here, and is no damage to the file
    try:
        state: dict[str, Any] = torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise StateError(
            f"{path} is not an intact state that can be read without running code ({first}); load another copy."
        ) from None
    try:
        states.check_whole(state)
    except StateError as error:
        raise StateError(f"{path}: {error}") from None
    return state


def _write(state: dict[str, Any], path: Path) -> None:
    write_whole(path, lambda file: torch.save(state, file))
