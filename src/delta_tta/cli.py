"""The command `delta-tta`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; its packages come with the extra `cli`."""
    try:
        from .commands import app
    except ImportError as error:
        missing = error.name or str(error)
        sys.exit(f"The command needs the package {missing}: pip install 'delta-tta[cli]'")
    app()
