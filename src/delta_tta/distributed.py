"""Several processes that adapt one model together: each answers its share of every batch, all learn from the whole.

After a step all hold the same state, equal to that of a single process with the whole batch.
Three things are exchanged: the moments of the features (a gather in each norm layer), the logits (one gather) and the
gradients (one sum); see docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from .engine.digests import checksum
from .errors import ModelError, SettingError, SyncError
from .files import digest

T = TypeVar("T")
NUMBERED = 2**20
"""Messages are numbered up to this, which every floating-point type from float32 on can hold."""


class Ranks:
    """The processes of a group, and this one among them."""

    def __init__(self, group: Any = None) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise SettingError(
                "Expected torch.distributed to be initialised before adapt(…, sync=True); call "
                "torch.distributed.init_process_group() first, for example under torchrun."
            )
        self.group = group
        self.count = dist.get_world_size(group)
        self.own = dist.get_rank(group)
        if self.own < 0:
            raise SettingError("This process is not a member of the given `process_group`.")
        self.broken: str | None = None  # why this rank is out of step; it then takes part in nothing more
        self._room = 0  # rows of logits that every rank has agreed to send
        self._sent = 0
        self.share = slice(0)  # which rows of the logits that were joined last are this rank's

    def __deepcopy__(self, memo: dict[int, Any]) -> Ranks:
        """A group cannot be copied; a copy of the adapter belongs to the same."""
        return self

    def gather(self, values: Tensor) -> Tensor:
        """Return everybody's values, (R, …); each rank gives the same shape."""
        self._sent = (self._sent + 1) % NUMBERED
        numbered = torch.cat([values.new_full((1,), self._sent), values.flatten()])
        everybody = numbered.new_empty((self.count, len(numbered)))
        self._ask(lambda: dist.all_gather(list(everybody.unbind(0)), numbered, group=self.group))
        if everybody.is_cpu and not bool((everybody[:, 0] == self._sent).all()):  # elsewhere looking would cost a wait
            self.broken = "the messages of the ranks do not belong together"
            self._ask(lambda: None)
        return everybody[:, 1:].reshape(self.count, *values.shape)

    def add(self, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return the sums over all ranks, all of them in one message; None where there is none (on every rank)."""
        given = [t for t in tensors if t is not None]
        if not given:
            return list(tensors)
        kind = given[0].dtype
        for t in given:
            kind = torch.promote_types(kind, t.dtype)
        flat = torch.cat([t.to(kind).flatten() for t in given])
        self._ask(lambda: dist.all_reduce(flat, group=self.group))
        parts = iter(flat.split([t.numel() for t in given]))
        return [None if t is None else next(parts).view_as(t).to(t.dtype) for t in tensors]

    def join(self, logits: Tensor) -> Tensor:
        """Return the logits of all ranks in their order, (ΣB, K); through our own share runs the gradient.

        Shares may differ, and be empty. Each rank sends as many rows as all have agreed on, and its true number; where
        one has more, all see it and agree on more rows.
        """
        own, classes = logits.detach(), logits.shape[1]
        while True:
            sent = own.new_zeros(self._room + 1, classes)
            sent[0, 0] = len(own)
            sent[1 : 1 + min(len(own), self._room)] = own[: self._room]
            everybody = self.gather(sent)
            sizes = [int(n) for n in everybody[:, 0, 0].tolist()]
            if max(sizes) <= self._room:
                break
            self._room = max(sizes)
        rows = [everybody[rank, 1 : 1 + size] for rank, size in enumerate(sizes)]
        rows[self.own] = logits
        self.share = slice(sum(sizes[: self.own]), sum(sizes[: self.own + 1]))
        return torch.cat(rows)

    def require_same(self, method: str, values: Mapping[str, Any]) -> None:
        """Raise unless all ranks have the same method and settings and, bit for bit, the same tensors."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        device = next((value.device for value in tensors.values()), torch.device("cpu"))
        for own_digest, error in (
            (digest(method), "The ranks adapt by different methods or settings; give all the same."),
            (checksum(tensors), "The models of the ranks differ; load the same weights on all of them before adapt()."),
        ):
            own = torch.tensor(list(bytes.fromhex(own_digest)), dtype=torch.float32, device=device)
            if not bool((self.gather(own) == own).all()):
                raise ModelError(error)

    def _ask(self, call: Callable[[], T]) -> T:
        if self.broken is not None:
            raise SyncError(
                f"Rank {self.own} of {self.count} is out of step ({self.broken}). Make new adapters on all ranks, and "
                "load the last state that was saved."
            )
        try:
            return call()
        except (RuntimeError, ValueError) as error:
            raise SyncError(
                f"Rank {self.own} of {self.count} waited for the others in vain; one of them has died or is doing "
                f"something else. Nothing was learnt from this batch. torch.distributed said: {error}"
            ) from error

    @contextmanager
    def step(self) -> Iterator[None]:
        """Let nothing more be sent after a step that failed here: the others would take it for something else."""
        try:
            yield
        except BaseException as error:
            self.broken = self.broken or f"an earlier call raised {type(error).__name__}"
            raise


def merged_moments(counts: Tensor, means: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and biased variance of parts put together (Chan et al. 1979).

    Args:
        counts: values per channel in each part, (R, 1); 0 for an empty one.
        means: of each part, (R, C).
        squares: sum of squared distances to the part's own mean, (R, C).
    """
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / total
