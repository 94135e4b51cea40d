"""Runs the service over HTTP and gRPC until the process is told to end."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from ..errors import SettingError
from .app import make_app
from .grpc_server import bind, make_server
from .security import Gate
from .served import Local
from .service import Service

DRAIN = 30
"""Seconds that requests have to end after SIGTERM."""


@dataclass(frozen=True)
class Address:
    """Where the service listens.

    Attributes:
        host: the address.
        port: for HTTP; 0 takes a free one.
        grpc_port: for gRPC; None: no gRPC.
        certificate: for TLS, a PEM file.
        key: its key.
        most_bytes: the largest request.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = 8081
    certificate: Path | None = None
    key: Path | None = None
    most_bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise SettingError("Expected --tls-cert and --tls-key together, but got one of them.")
        for file in (self.certificate, self.key):
            if file is not None and not file.is_file():
                raise SettingError(f"Expected a PEM file at {file}, but there is none.")


def run(
    make: Callable[[], Service], address: Address, gate: Gate, announce: Callable[[dict[str, str | None]], Any]
) -> None:
    """Serve until SIGTERM or Ctrl-C, then answer what has come and save all states.

    Args:
        make: makes the service, inside the event loop.
        address: where.
        gate: who may ask.
        announce: called with name and addresses when all is ready.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # for which asyncio would cancel us before all is saved
        signal.signal(signal.SIGINT, _interrupt)
    try:
        asyncio.run(_serve(make, address, gate, announce))
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


async def _serve(
    make: Callable[[], Service], address: Address, gate: Gate, announce: Callable[[dict[str, str | None]], Any]
) -> None:
    service, server = make(), None
    with _socket(address.host, address.port) as sock:
        await service.start()
        try:
            secure = "http" if address.certificate is None else "https"
            at = f"{secure}://{_written(address.host)}:{sock.getsockname()[1]}"
            where: dict[str, str | None] = {"name": service.name, "http": at, "grpc": None}
            if address.grpc_port is not None:
                server = make_server(Local(service), gate, address.most_bytes)
                port = bind(server, address.host, address.grpc_port, address.certificate, address.key)
                await server.start()
                where["grpc"] = f"{_written(address.host)}:{port}"
            config = uvicorn.Config(
                make_app(Local(service), gate, address.most_bytes),
                loop="asyncio",
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                ssl_certfile=address.certificate,
                ssl_keyfile=address.key,
                timeout_graceful_shutdown=DRAIN,
            )
            announce(where)
            await uvicorn.Server(config).serve(sockets=[sock])
        finally:  # also after a signal, which uvicorn raises again when all is answered
            if server is not None:
                await server.stop(DRAIN)
            await service.close()


def _socket(host: str, port: int) -> socket.socket:
    try:
        family, kind, number, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as undo:
            sock = undo.enter_context(socket.socket(family, kind, number))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(place)
            sock.listen(2048)  # who comes before all is ready waits
            undo.pop_all()
    except OSError as error:
        raise SettingError(f"Expected a free address for HTTP, but {host}:{port} cannot be used ({error}).") from None
    return sock


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
