"""Results in one SQLite file: a row a cell, its trace beside it. Safe against kill -9 and against two runs at once."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ..errors import DataError
from ..files import fingerprint
from . import rows
from .cell import Cell
from .evaluate import Result
from .trace import Trace

APPLICATION = 0x44545441
"""In the header of the file: a store of delta-tta, not anybody's database."""
SCHEMA = 1
PATIENCE = 60.0
"""Seconds to wait for another process that writes."""
DEAD = -1
SILENT = 120.0
"""Seconds after which a claim from another machine counts as abandoned."""
TABLES = """
CREATE TABLE cells (key TEXT PRIMARY KEY, cell TEXT NOT NULL, result TEXT NOT NULL, finished REAL NOT NULL,
                    digest TEXT NOT NULL);
CREATE TABLE traces (key TEXT PRIMARY KEY REFERENCES cells (key), data BLOB NOT NULL, digest TEXT NOT NULL);
CREATE TABLE claims (key TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, born INTEGER NOT NULL,
                     beat REAL NOT NULL);
"""


class Store:
    """An open store; a context manager. A file that is something else, or damaged, is refused and left alone.

    Args:
        path: the file.
        create: make it where it is missing. Otherwise it must be there, and may be one that cannot be written.
    """

    def __init__(self, path: str | Path, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.exists():
            raise DataError(f"Expected a store of results at {path}, but there is none; `delta-tta run` makes one.")
        if create:
            _make_folder(self.path)
        _refuse_foreign(self.path)
        read_only = _unwritable(self.path)
        if read_only is not None and create:
            raise OSError(f"{read_only} may not be written; a store of results must be. Choose another with --store.")
        with contextlib.ExitStack() as failed, _sqlite_errors(self.path):
            self._base = sqlite3.connect(
                self.path if read_only is None else _to_read(self.path),
                timeout=PATIENCE,
                isolation_level=None,
                uri=read_only is not None,
            )
            failed.callback(self._base.close)
            self._open(read_only is None)
            failed.pop_all()

    def _open(self, writable: bool) -> None:
        tables = self._one("SELECT count(*) FROM sqlite_master")  # also fails on what is no database
        if self._one("PRAGMA application_id") != APPLICATION:
            if tables or not writable:
                raise DataError(f"{self.path} is a database of something else; it was not changed.")
            with self._transaction():
                if self._one("PRAGMA application_id") != APPLICATION:  # another run may have been quicker
                    for statement in filter(str.strip, TABLES.split(";")):
                        self._base.execute(statement)
                    self._base.execute(f"PRAGMA user_version = {SCHEMA}")
                    self._base.execute(f"PRAGMA application_id = {APPLICATION}")
        if writable:
            self._share()
        version = self._one("PRAGMA user_version")
        if version != SCHEMA:
            raise DataError(f"{self.path} has schema {version}, but this version of delta-tta reads {SCHEMA}.")
        fault = self._one("PRAGMA quick_check(1)")
        if fault != "ok":
            raise DataError(f"{self.path} is damaged ({fault}); it was not changed.")
        self._base.execute("PRAGMA synchronous = FULL")

    def _share(self) -> None:
        """Let readers and a writer work at once; SQLite does not wait for a lock here by itself."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._base.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    def __len__(self) -> int:
        return int(self._one("SELECT count(*) FROM cells"))

    def done(self, keys: Sequence[str]) -> set[str]:
        """Return which of these cells have a result."""
        return {key for key in keys if self._base.execute("SELECT 1 FROM cells WHERE key = ?", (key,)).fetchone()}

    def claim(self, key: str) -> bool:
        """Take a cell for this process, unless it is done or a living process has it."""
        with self._transaction():
            if self.done([key]):
                return False
            row = self._base.execute("SELECT host, pid, born, beat FROM claims WHERE key = ?", (key,)).fetchone()
            if row is not None and _alive(*row) and row[:3] != _me():
                return False
            self._base.execute("REPLACE INTO claims VALUES (?, ?, ?, ?, ?)", (key, *_me(), time.time()))
        return True

    def beat(self) -> None:
        """Say that this process still works on what it claimed."""
        self._base.execute("UPDATE claims SET beat = ? WHERE host = ? AND pid = ? AND born = ?", (time.time(), *_me()))

    def release(self, key: str | None = None) -> None:
        """Give back one claim of this process, or all."""
        words, values = ("AND key = ?", [key]) if key is not None else ("", [])
        self._base.execute(f"DELETE FROM claims WHERE host = ? AND pid = ? AND born = ? {words}", (*_me(), *values))

    def record(self, key: str, cell: Cell, result: Result) -> None:
        """Keep a result: all of it or nothing, and the first one if there are two."""
        (said, done), trace = rows.written(cell, result), result.trace.packed()
        row = (key, said, done, time.time(), fingerprint(key, said, done))
        with self._transaction():
            if self._base.execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?)", row).rowcount:
                self._base.execute("INSERT INTO traces VALUES (?, ?, ?)", (key, trace, fingerprint(key, trace)))
            self.release(key)

    def results(self, keys: Collection[str] | None = None) -> Iterator[tuple[str, Cell, Result]]:
        """Yield (key, cell, result) of these cells, or of all in the order they were finished; traces come empty."""
        wanted = None if keys is None else set(keys)
        try:
            found = self._base.execute("SELECT key, cell, result, digest FROM cells ORDER BY finished, key").fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise DataError(f"{self.path} is damaged: {error}.") from None
        for key, cell, result, digest in found:
            if fingerprint(key, cell, result) != digest:
                raise DataError(f"{self.path} is damaged: the result of cell {key} is not what was written.")
            if wanted is None or key in wanted:
                try:
                    one = rows.read(cell, result)
                except DataError as error:
                    raise DataError(f"{self.path}: the row of cell {key} cannot be read: {error}.") from None
                yield key, *one

    def trace(self, key: str) -> Trace:
        """Return what happened along the stream of a cell."""
        row = self._base.execute("SELECT data, digest FROM traces WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise DataError(f"{self.path} has no trace of cell {key}.")
        if fingerprint(key, row[0]) != row[1]:
            raise DataError(f"{self.path} is damaged: the trace of cell {key} is not what was written.")
        try:
            return Trace.unpacked(row[0])
        except DataError as error:
            raise DataError(f"{self.path}, cell {key}: {error}") from None

    def _one(self, query: str) -> Any:
        return self._base.execute(query).fetchone()[0]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with _sqlite_errors(self.path):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def _sqlite_errors(path: Path) -> Iterator[None]:
    """Tell what SQLite cannot do now (a full disk, a lock) from what it cannot read."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
        raise OSError(f"{path} cannot be used: {error}.") from None
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path} is damaged or no store of results ({error}); it was not changed.") from None


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"The folder {path.parent} for the store of results cannot be made: {error.strerror}.") from None


def _unwritable(path: Path) -> Path | None:
    """Return what may not be written: the file, or the folder, in which SQLite writes beside it; None if both may."""
    return next((place for place in (path, path.parent) if place.exists() and not os.access(place, os.W_OK)), None)


def _to_read(path: Path) -> str:
    """Return the address by which SQLite only reads; without a log beside the file nobody is writing it now."""
    log, index = (path.with_name(f"{path.name}-{end}") for end in ("wal", "shm"))
    if log.exists() and not index.exists():
        raise OSError(f"{path} may not be written, and its last results are still in {log}; copy both, and read those.")
    return f"{path.resolve().as_uri()}?{'mode=ro' if log.exists() else 'immutable=1'}"


def _refuse_foreign(path: Path) -> None:
    """Look at the head of the file before SQLite does, which would tidy up what it opens."""
    if path.is_dir():
        raise DataError(f"Expected a file for the store of results, but {path} is a folder.")
    head = b""
    if path.exists():
        with path.open("rb") as file:
            head = file.read(100)
    if head and not (head.startswith(b"SQLite format 3\0") and head[68:72] == APPLICATION.to_bytes(4, "big")):
        raise DataError(f"{path} is damaged or no store of results; it was not changed.")


def _me() -> tuple[str, int, int]:
    return socket.gethostname(), os.getpid(), _born(os.getpid())


def _alive(host: str, pid: int, born: int, beat: float) -> bool:
    if host != socket.gethostname():
        return time.time() - beat < SILENT
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _born(pid) == born != DEAD  # the number may have gone to another process


def _born(pid: int) -> int:
    """Return when a process started, in the kernel's ticks; 0 where the system does not say, DEAD for a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return DEAD if state[0] in "ZX" else int(state[19])
    except (OSError, ValueError, IndexError):
        return 0
