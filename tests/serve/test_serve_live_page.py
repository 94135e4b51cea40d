"""The page in a real browser, on the real service."""

import time

import pytest
from servers import TOKEN, Server

from e2e.chromium import chromium, find
from nets import batches

PROGRAM = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("serve"),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium found: install chromium or google-chrome"),
]


def until(browser, script, accepts, seconds=20):
    end = time.monotonic() + seconds
    while not accepts(value := browser.run(script)):
        assert time.monotonic() < end, f"{script} is {value!r}"
        time.sleep(0.05)
    return value


def test_the_page_shows_the_service_and_controls_it(tmp_path):
    body = "document.body.textContent"
    with Server("--checkpoints", tmp_path) as server, chromium(PROGRAM) as browser:
        for x in batches(3):
            server.infer(x)
        browser.call("Page.navigate", url=f"http://{server.host}:{server.port}/")
        until(browser, "document.getElementById('state')?.dataset.is", lambda value: value == "live")
        assert "anchored+sticky" in browser.run(body)
        press = "document.querySelector('[data-do={}]').click()"
        browser.run(press.format("freeze"))
        until(browser, "document.getElementById('result').textContent", lambda said: "token" in said.lower())
        assert server.status()["learning"] is True
        browser.run(f"document.getElementById('token').value = {TOKEN!r}")
        browser.run(press.format("freeze"))
        until(browser, "document.getElementById('result').textContent", lambda said: "learns no more" in said)
        assert server.status()["learning"] is False
        browser.run(press.format("snapshot"))
        until(browser, body, lambda text: "Snapshot of shared taken, on disk" in text)
        assert not [line for line in browser.console if "Content Security Policy" in str(line)]
