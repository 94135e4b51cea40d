"""A small driver for a headless Chromium: the DevTools protocol over a pipe, so that no package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECONDS = 15.0  # for one answer; a browser that takes longer hangs

# The browser reads commands from descriptor 3 and writes to 4. This little program puts our ends of the pipes there:
# `preexec_fn` would do the same, but is unsafe beside the threads of a test process.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for end, number in zip(ends, (3, 4)):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def find() -> str | None:
    """Return the path of a Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


class BrowserError(Exception):
    """The browser refused a command, threw, or did not answer in time."""


class Browser:
    """One browser with one tab.

    Attributes:
        console: what the page wrote to its console, and what it threw, since the last `open`.
        requests: the addresses it asked for since then.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            answer = self._receive(until, method)
            if answer.get("id") == self._number:
                break
            self._note(answer)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path: Path, draws: bool = True) -> None:
        """Open a file and wait until it is loaded and, unless its scripts are turned off, drawn."""
        self._go("about:blank")  # so that nothing of the page before is counted as this one's
        self.console, self.requests = [], []
        self._go(path.as_uri())
        if draws:
            self.drawn()

    def _go(self, address: str) -> None:
        self._loaded = False
        failed = self.call("Page.navigate", url=address).get("errorText")
        if failed:
            raise BrowserError(f"{address}: {failed}")
        until = time.monotonic() + SECONDS
        while not self._loaded:
            self._note(self._receive(until, "the page"))

    def drawn(self) -> None:
        """Wait until the page has drawn what it was last told to."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(_thrown(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def look(self, width: int = 1280, height: int = 900, theme: str = "light", media: str = "") -> None:
        """Set the size of the window, the preferred theme, and the medium (screen, or print)."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.drawn()

    def point(self, x: float, y: float) -> None:
        """Move the pointer there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.drawn()

    def click(self, x: float, y: float) -> None:
        """Press and release the left button there."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.drawn()

    def press(self, key: str) -> None:
        """Press and release a key; Enter also types its character, as a keyboard does."""
        text = {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36}[key]
        for kind in ("keyDown", "keyUp"):
            typed = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **typed)
        self.drawn()

    def picture(self, path: Path, whole: bool = True) -> None:
        """Save a PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _receive(self, until: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(until - time.monotonic(), 0))[0]:
                raise BrowserError(f"no answer to {what} within {SECONDS:.0f} s")
            chunk = os.read(self._from, 1 << 16)
            if not chunk:
                raise BrowserError(f"the browser ended during {what}")
            self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        kind, of = event.get("method"), event.get("params", {})
        if kind == "Page.loadEventFired":
            self._loaded = True
        elif kind == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(one.get("value", one.get("description"))) for one in of["args"]))
        elif kind == "Runtime.exceptionThrown":
            self.console.append(_thrown(of["exceptionDetails"]))
        elif kind == "Log.entryAdded":
            self.console.append(of["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(of["request"]["url"])


def _thrown(details: dict[str, Any]) -> str:
    return details.get("exception", {}).get("description") or details["text"]


@contextlib.contextmanager
def chromium(program: str) -> Iterator[Browser]:
    """Start a browser with a profile of its own; it and its profile are gone afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _LAUNCH, str(theirs_in), str(theirs_out), program, *_FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # its helpers form a group that can be ended as one
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_out, ours_in)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(SECONDS)
            os.close(ours_out)
            os.close(ours_in)
