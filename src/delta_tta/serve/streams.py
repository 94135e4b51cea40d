"""An adapter with its checkpoints, and a bounded number of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..adapter import Adapter
from ..checkpoints import Checkpointer, load_state, save_state
from ..signals import Signals
from .inference import RefusedError

log = logging.getLogger("delta_tta")

SNAPSHOT = "snapshot.pt"


def folder_of(root: Path, stream: str) -> Path:
    """Return the folder of a stream; whatever the name, it lies in `root`."""
    return root / f"stream-{quote(stream, safe='')}"


class Slot:
    """One adapter that learns, its checkpoints, and what happened to it. Its methods run in one thread at a time.

    Attributes:
        identity: the stream, or "shared".
        adapter: what answers.
        samples: answered since it is in memory.
        batches: answered since then.
        seen: when the last one came, Unix time.
        frozen: whether it learns nothing.
        signals: of the last batch that was learnt from.
        failures: how often its state could not be saved.
        error: why the last attempt to save failed; None if it did not.
        saved: when the last one succeeded, Unix time; None if none did.
    """

    def __init__(self, identity: str, adapter: Adapter, folder: Path | None, every: int, keep: int) -> None:
        self.identity, self.adapter, self.folder = identity, adapter, folder
        self.samples = self.batches = 0
        self.seen = time.time()
        self.frozen = False
        self.signals: Signals | None = None
        self.saved: float | None = None
        self.saved_step: int | None = None
        self._every, self._failed_opening = every, 0
        self._opening: Exception | None = None
        self._snapshot: dict[str, Any] | None = None
        self._checkpoints: Checkpointer | None = None
        self._tried = time.monotonic()
        if folder is not None:
            self._checkpoints = Checkpointer(folder, every=None, keep=keep)
            self._open()

    @property
    def resumed(self) -> bool:
        """Whether it began with the state of an earlier time."""
        return self._checkpoints is not None and self._checkpoints.resumed is not None

    @property
    def failures(self) -> int:
        """How often saving failed."""
        return self._failed_opening + (0 if self._checkpoints is None else self._checkpoints.failures)

    @property
    def error(self) -> Exception | None:
        """Why the last attempt to save failed."""
        return self._opening or (None if self._checkpoints is None else self._checkpoints.last_error)

    @property
    def unsaved(self) -> int:
        """Batches learnt since the last checkpoint."""
        if self._checkpoints is None or self._checkpoints.adapter is None:
            return self.batches
        return self._checkpoints.step - (self.saved_step or 0)

    def due(self, seconds: float) -> bool:
        """Whether a checkpoint is due: so many batches, or so much time, have passed."""
        if self.folder is None or self.unsaved == 0:
            return False
        return time.monotonic() - self._tried >= seconds

    def full(self) -> bool:
        """Whether so many batches have passed; after a failure, so many again."""
        unsaved = self.unsaved
        return self.folder is not None and unsaved > 0 and unsaved % self._every == 0

    def save(self) -> bool:
        """Save the state and return whether that worked."""
        self._tried = time.monotonic()
        if self._checkpoints is None:
            return False
        if self._checkpoints.adapter is None and not self._open():
            return False
        if not self._checkpoints.try_save():
            return False
        self.saved, self.saved_step = time.time(), self._checkpoints.step
        return True

    def _open(self) -> bool:
        """Attach the checkpoints; a folder that cannot be made or read now is tried again later."""
        assert self._checkpoints is not None
        try:
            if self.batches and any(self._checkpoints.folder.glob("step-*.pt")):
                raise OSError(f"{self._checkpoints.folder} holds checkpoints that could not be read before")
            self._checkpoints.attach(self.adapter)
        except OSError as error:
            if self._opening is None:
                log.error("Checkpoints in %s cannot be kept; the stream goes on unsaved: %s", self.folder, error)
            self._opening, self._failed_opening = error, self._failed_opening + 1
            return False
        self._opening = None
        if self._checkpoints.resumed is not None:
            self.saved = self._checkpoints.resumed.stat().st_mtime
        self.saved_step = self._checkpoints.step
        return True

    def reset(self) -> None:
        """Forget all that was learnt, also in the folder."""
        try:
            self.adapter.reset()
        finally:
            self._learnt_anew()

    def snapshot(self) -> str:
        """Keep the state of now for `rollback`; return where."""
        self._snapshot = self.adapter.state_dict()
        if self.folder is None:
            return "in memory"
        try:
            save_state(self.adapter, self.folder / SNAPSHOT)
        except OSError as error:
            return f"in memory only ({error})"
        return "on disk"

    def rollback(self) -> str:
        """Go back to the last snapshot, else to the last checkpoint; return to which."""
        self.adapter.wait()
        files = [] if self.folder is None else [self.folder / SNAPSHOT, *self._newest()]
        if self._snapshot is not None:
            self.adapter.load_state_dict(self._snapshot)
            where = "the last snapshot"
        else:
            file = next((file for file in files if file.is_file()), None)
            if file is None:
                raise RefusedError(409, "There is no snapshot and no checkpoint to go back to; take a snapshot first.")
            load_state(self.adapter, file)
            where = "the last snapshot" if file.name == SNAPSHOT else f"the checkpoint {file.stem}"
        self._learnt_anew()
        return where

    def _learnt_anew(self) -> None:
        """Save at once: after a crash, what was taken back must not come again."""
        if self.folder is not None:
            self.save()

    def _newest(self) -> list[Path]:
        assert self.folder is not None
        with suppress(OSError):
            return sorted(self.folder.glob("step-*.pt"), reverse=True)
        return []

    def close(self) -> bool:
        """Save what is not saved; return whether nothing is lost."""
        kept = self.folder is None or self.unsaved == 0 or self.save()
        if kept and self._checkpoints is not None:
            self._checkpoints.detach()
        return kept


class Maker:
    """Makes a slot for each stream: of one loaded model, each a copy."""

    def __init__(self, adapt: Callable[[], Adapter], folder: Path | None, every: int, keep: int) -> None:
        self._adapt, self._folder, self._every, self._keep = adapt, folder, every, keep

    def shared(self) -> Slot:
        """Return the slot of all streams together."""
        return self._slot("shared", None if self._folder is None else self._folder / "shared")

    def separate(self, stream: str) -> Slot:
        """Return the slot of one stream."""
        return self._slot(stream, None if self._folder is None else folder_of(self._folder, stream))

    def trial(self) -> Adapter:
        """Return an adapter that keeps nothing."""
        return self._adapt()

    def _slot(self, identity: str, folder: Path | None) -> Slot:
        return Slot(identity, self._adapt(), folder, self._every, self._keep)
