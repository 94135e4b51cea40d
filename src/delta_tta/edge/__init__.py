"""Adapt where there is no torch: an ONNX graph of the model, and the rest in numpy.

`export` writes the graph, with torch. `EdgeModel` runs it with numpy and onnxruntime; without torch, this part of the
package can still be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .runtime import EdgeModel

if TYPE_CHECKING:
    from .exporter import export

__all__ = ["EdgeModel", "export"]


def __getattr__(name: str) -> Any:
    if name == "export":
        from .exporter import export

        return export
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
