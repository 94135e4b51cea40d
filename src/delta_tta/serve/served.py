"""What the routes ask of a service, in this process or spread over several."""

from __future__ import annotations

from typing import Any, Protocol

from .inference import INPUT, OUTPUTS, Answer, Inference
from .metrics import Collector, exposition
from .protocol import VERSION
from .service import Service
from .status import control, status


class Served(Protocol):
    """A service as the routes see it."""

    @property
    def name(self) -> str:
        """What clients call the model."""

    @property
    def ready(self) -> bool:
        """Whether it answers."""

    async def about(self) -> dict[str, Any]:
        """Return what the protocol tells about the model."""

    async def infer(self, request: Inference) -> Answer:
        """Answer a request."""

    def refused(self, code: int) -> None:
        """Count a request that was not answered."""

    async def status(self) -> dict[str, Any]:
        """Return what GET /status answers."""

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and its content type."""

    async def control(self, what: str, message: Any) -> str:
        """Do what a control route asks for."""


class Local:
    """A service in this process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def name(self) -> str:
        """What clients call the model."""
        return self._service.name

    @property
    def ready(self) -> bool:
        """Whether it answers."""
        return self._service.ready

    async def about(self) -> dict[str, Any]:
        """Return what the protocol tells about the model."""
        service = self._service
        return {
            "name": service.name,
            "versions": [VERSION],
            "platform": "delta-tta",
            "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *service.wanted.shape]}],
            "outputs": [
                {"name": name, "datatype": kind, "shape": [-1] if name == "classes" else [-1, service.classes]}
                for name, kind in OUTPUTS.items()
            ],
        }

    async def infer(self, request: Inference) -> Answer:
        """Answer a request."""
        return await self._service.infer(request)

    def refused(self, code: int) -> None:
        """Count a request that was not answered."""
        self._service.journal.refused(code)

    async def status(self) -> dict[str, Any]:
        """Return what GET /status answers."""
        return status(self._service, locked=True)

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and its content type."""
        return exposition(Collector(self._service), accept)

    async def control(self, what: str, message: Any) -> str:
        """Do what a control route asks for."""
        return await control(self._service, what, message)
