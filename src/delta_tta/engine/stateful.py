"""A module whose state is what adaptation changed: neither what a module saves nor what it loads."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..errors import StateError
from . import state as states


class Stateful(nn.Module):
    """Base of the adapter; it says what is captured and how that is recovered."""

    def __init__(self) -> None:
        super().__init__()
        self._inner_prefix = ""
        self.register_load_state_dict_post_hook(_expect_no_more)  # type: ignore[no-untyped-call]  # torch does not type it

    def _captured(self) -> dict[str, Any]:
        raise NotImplementedError

    def _recover(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def state_dict(self, *, prefix: str = "", **as_part: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return what adaptation changed, and only that; loads with torch.load(weights_only=True).

        That is kilobytes, but for CoTTA, which changes all weights; with update="slow" or "window" it includes the
        samples kept for the next update.
        """
        state = states.seal(self._captured())
        if as_part.get("destination") is None:
            return state
        as_part["destination"][prefix + "adaptation"] = state  # the adapter is part of a larger module
        whole: dict[str, Any] = as_part["destination"]
        return whole

    def load_state_dict(self, state_dict: dict[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Go on from a saved state, bit for bit. A state that does not fit changes nothing."""
        self._recover(state_dict)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Load as part of a larger module."""
        _metadata, _strict, missing_keys, _unexpected_keys, errors = rest
        self._inner_prefix = f"{prefix}model."
        if f"{prefix}adaptation" not in state_dict:
            missing_keys.append(f"{prefix}adaptation")
            return
        try:
            self.load_state_dict(state_dict[f"{prefix}adaptation"])
        except StateError as error:
            errors.append(str(error))


def _expect_no_more(adapter: Stateful, keys: Any) -> None:
    """The adapter's part of a larger state does not hold the model inside, so nothing of that is missing."""
    keys.missing_keys[:] = [key for key in keys.missing_keys if not key.startswith(adapter._inner_prefix)]
