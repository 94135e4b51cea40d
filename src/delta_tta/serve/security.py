"""Who may ask for what: a token, and protection from pages of other sites."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import SettingError

VARIABLE = "DELTA_TTA_TOKEN"
SHORTEST = 16


@dataclass(frozen=True)
class Gate:
    """What needs the token.

    Attributes:
        token: the secret.
        everything: whether all routes need it, as on an address that others can reach.
        generated: whether nobody gave it.
    """

    token: str
    everything: bool
    generated: bool = False

    def opens(self, authorization: str | None) -> bool:
        """Whether an Authorization header holds the token, as Bearer or as the password of Basic."""
        kind, _, rest = (authorization or "").partition(" ")
        given = rest.strip().encode(errors="replace")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                given = b""
        elif kind.lower() != "bearer":
            given = b""
        return hmac.compare_digest(given, self.token.encode())

    def needs(self, path: str) -> bool:
        """Whether a route needs the token."""
        return self.everything or path.startswith("/control/")


def gate_of(host: str, token: str | None, file: Path | None) -> Gate:
    """Return the gate of a service on this address; the token comes from the command, a file or the environment."""
    if token is not None and file is not None:
        raise SettingError("Expected --token or --token-file, but got both.")
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"Expected a token in {file}, but it cannot be read ({error}).") from None
    token = token if token is not None else os.environ.get(VARIABLE)
    away = not loopback(host)
    if token is None and away:
        raise SettingError(
            f"Expected a token to serve on {host}, which others can reach, but got none. Set {VARIABLE} or "
            "--token-file, or serve on 127.0.0.1."
        )
    if token is None:
        return Gate(secrets.token_urlsafe(24), everything=False, generated=True)
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingError(
            f"Expected a token of at least {SHORTEST} ASCII characters without spaces, but got {len(token)}. "
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one."
        )
    return Gate(token, everything=away)


def loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host.lower() == "localhost"


def of_another_site(host: str | None, origin: str | None) -> bool:
    """Whether a browser asks in the name of another site's page; then it sends that site as `Origin`."""
    return origin is not None and (host is None or urlsplit(origin).netloc.lower() != host.lower())


def host_alone(host: str) -> str:
    """Return a Host header without the port."""
    return urlsplit(f"//{host}").hostname or ""
