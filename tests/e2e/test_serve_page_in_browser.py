"""The live page of the service in a real browser, before a small server whose state evolves."""

import copy
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from chromium import chromium, find
from test_page_in_browser import CONTRAST

from delta_tta.serve.page import page, policy

PROGRAM = find()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium found: install chromium or google-chrome"),
]

HOSTILE = '<img src=x onerror="window.ran=1"></script><script>window.ran=2</script><!-- & \' \u2028'
MISSING = dict.fromkeys(("entropy", "used", "latency", "share", "stays", "accuracy", "low", "high"))


def batch(i, now):
    """Return the entry of one batch in the history."""
    estimate = 0.7 + 0.15 * math.sin(i / 60)
    return {
        "time": now - 600 + i, "samples": 64 * (i + 1), "entropy": 0.6 + 0.4 * math.cos(i / 40), "used": 0.5,
        "batch": 1 + i % 64, "latency": 20 + i % 7, "share": 0.9, "stays": 0.97,
        "accuracy": estimate, "low": estimate - 0.05, "high": estimate + 0.05,
    }  # fmt: skip


def state(batches=600, classes=10, **changes):
    """Return what a service answers to GET status."""
    now = time.time()
    base = {
        "model": {"name": "street cameras", "method": "anchored+mirror+sticky", "network": "ResNet", "classes": classes,
                  "words": "Normalises with a mixture of source and stream statistics; filters the answers."},
        "started": now - 7300, "now": now, "learning": True, "locked": False,
        "requests": 12_345, "errors": 2, "samples": 64 * batches, "latency": {"p50": 21.4, "p95": 48.0}, "rollbacks": 1,
        "checkpoint": {"age": 12.0, "step": 500, "failures": 0, "error": None},
        "streams": [{"id": "gate", "samples": 500, "batches": 10, "age": 3.0},
                    {"id": "yard", "samples": 70, "batches": 2, "age": 400.0}],
        "history": [batch(i, now) for i in range(batches)],
        "answers": [i // 25 * 7 % classes for i in range(min(600, 64 * batches))],
        "frequencies": None,
        "events": [{"time": now - 90_000, "kind": "start", "text": "resumed from batch 400"},
                   {"time": now - 5, "kind": "rollback", "text": "the answers had collapsed"}],
    }  # fmt: skip
    return base | changes


class Service:
    """A server with the page, a state that a test may change, and the requests that came to control/."""

    def __init__(self):
        self.state = state()
        self.code = 200
        self.token = None
        self.asked = []
        self.controls = []
        self.reply = None
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def send(self, code, body, kind="application/json", **headers):
                self.send_response(code)
                for name, value in {"Content-Type": kind, "Content-Length": len(body), **headers}.items():
                    self.send_header(name.replace("_", "-"), str(value))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                if self.path == "/app/":
                    self.send(200, page().encode(), "text/html; charset=utf-8", Content_Security_Policy=policy())
                elif self.path == "/app/status":
                    service.asked.append((time.monotonic(), self.headers.get("Authorization")))
                    self.send(service.code, json.dumps(service.state).encode())
                else:
                    self.send(404, b"{}")

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                given = self.headers.get("Authorization")
                service.controls.append((self.path, body, given, self.headers.get("Content-Type")))
                if service.token and given != f"Bearer {service.token}":
                    self.send(401, json.dumps({"error": "Expected the token, but got another."}).encode())
                    return
                action = self.path.rpartition("/")[2]
                if action in ("freeze", "learn"):
                    service.state["learning"] = action == "learn"
                self.send(200, json.dumps({"done": service.reply or f"{action}: done"}).encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/app/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium(PROGRAM) as one:
        yield one


@pytest.fixture
def service():
    one = Service()
    yield one
    one.close()


@pytest.fixture
def shown(browser, service):
    """Return a function that opens the page of the service and waits until it shows a state or an error."""

    def show(width=1280, height=900, theme="light", expected="live"):
        browser.look(width=width, height=height, theme=theme)
        browser.call("Page.navigate", url="about:blank")
        until(browser, "location.href", "about:blank")
        browser.console, browser.requests = [], []
        browser.call("Page.navigate", url=service.address)
        until(browser, "document.getElementById('state')?.dataset.is", expected)
        browser.drawn()
        return browser

    yield show
    browser.call("Page.navigate", url="about:blank")  # so that nothing is asked of a server that is gone


def until(browser, script, expected, seconds=15):
    """Wait until an expression in the page has a value, or, for a function, one that it accepts."""
    accepts = expected if callable(expected) else lambda value: value == expected
    end = time.monotonic() + seconds
    while not accepts(value := browser.run(script)):
        assert time.monotonic() < end, f"{script} is {value!r}"
        time.sleep(0.05)
    return value


def text(name):
    return f"document.getElementById({name!r}).textContent"


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({selector!r})].map(one => one.textContent)")


def place(browser, selector, across=0.5, down=0.5):
    """Scroll an element into view and return a point on it."""
    at = browser.run(f"""(() => {{
        const element = document.querySelector({selector!r});
        element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
        const box = element.getBoundingClientRect();
        return [box.left + box.width * {across}, box.top + box.height * {down}];
    }})()""")
    browser.drawn()
    return at


def click(browser, selector):
    browser.click(*place(browser, selector))


def cards(browser):
    labels, values = (
        texts(browser, "#cards dt"),
        browser.run(
            "[...document.querySelectorAll('#cards dd')].map(one => [...one.childNodes].map(node => node.textContent))"
        ),
    )
    return dict(zip(labels, values, strict=True))


def curve(key, selector):
    return f'figure[data-key="{key}"] {selector}'


def panels(browser):
    return browser.run(
        "[...document.querySelectorAll('#curves figure')].filter(one => !one.hidden).map(o => o.dataset.key)"
    )


def test_the_state_is_shown_and_nothing_else_is_fetched(shown, service):
    browser = shown()
    assert browser.run(text("name")) == "street cameras"
    assert browser.run("document.title") == "street cameras – delta-tta"
    assert browser.run(text("words")) == service.state["model"]["words"]
    assert browser.run(text("facts")) == "anchored+mirror+sticky · ResNet · 10 classes · up for 2 h"
    assert cards(browser) == {
        "Requests": ["12,345", "2 errors"],
        "Samples": ["38,400", ""],
        "Latency, median": ["21.4 ms", "95 %: 48 ms"],
        "State": ["learning", ""],
        "Rollbacks": ["1", ""],
        "Checkpoint": ["12 s ago", "batch 500"],
    }
    assert texts(browser, "#streams tr > *") == ["gate", "500", "10", "3 s ago", "yard", "70", "2", "7 min ago"]
    assert texts(browser, "#events b") == ["rollback", "start"]
    dates = texts(browser, "#events time")
    assert [len(one) for one in dates] == [8, 19], "the time of today, the date of another day"
    assert browser.console == []
    assert set(browser.requests) == {service.address, service.address + "status"}


def test_the_page_follows_the_state(shown, service):
    browser = shown()
    changed = state(3, 10, samples=99_001, learning=False, checkpoint=None, rollbacks=2)
    changed["checkpoint"] = {"age": 90.0, "step": 7, "failures": 3, "error": "No space left on device"}
    service.state = changed
    until(browser, text("cards"), lambda value: "99,001" in value)
    assert cards(browser)["State"] == ["frozen", "answers, but does not learn"]
    assert cards(browser)["Checkpoint"] == ["failed 3 times", "No space left on device; last: 90 s ago"]
    assert browser.run(text("learning")) == "Learn"
    service.state = state(3, 10, checkpoint=None)
    until(browser, text("cards"), lambda value: "no folder is given" in value)
    assert browser.console == []


def test_the_policy_refuses_other_scripts_other_hosts_and_markup(shown):
    browser = shown()
    assert browser.run("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"
    for sink in (
        "document.createElement('script').text = 'window.ran = 3'",
        "document.body.innerHTML += '<p>'",
        "setTimeout('window.ran = 3')",
    ):
        assert browser.run(f"(() => {{ try {{ {sink} }} catch {{ return 'refused' }} }})()") == "refused"
    browser.run("document.body.setAttribute('style', 'color: red')")
    assert browser.run("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"


def test_a_value_that_is_never_known_has_no_curve_and_gaps_break_a_line(shown, service):
    service.state["history"] = [batch(i, 1e9) | MISSING | {"entropy": None if i in (3, 5) else 1.0} for i in range(9)]
    browser = shown()
    assert panels(browser) == ["entropy", "batch"]
    assert browser.run(f"document.querySelectorAll('{curve('entropy', '.line')}').length") == 3
    service.state = state()
    until(browser, "document.querySelectorAll('.band').length", 1)
    assert panels(browser) == ["accuracy", "entropy", "used", "share", "stays", "latency", "batch"]
    assert browser.console == []


def test_tiny_values_are_told_but_not_blown_up(shown, service):
    service.state["history"] = [batch(i, 1e9) | {"entropy": 1.26e-5 * i} for i in range(2)]
    browser = shown()
    assert texts(browser, curve("entropy", "span")) == ["0.000013 nats"]
    assert texts(browser, curve("entropy", "text"))[:3] == ["0", "0.05", "0.1"]
    assert browser.console == []


def test_the_pointer_reads_the_same_batch_in_all_curves(shown, service):
    browser = shown()
    known = service.state["history"]
    browser.point(*place(browser, curve("latency", "svg"), 0.999))
    assert texts(browser, curve("batch", "span")) == ["24"]
    last = known[-1]
    interval = f"({100 * last['low']:.1f} to {100 * last['high']:.1f})".replace(".0", "")
    assert interval in texts(browser, curve("accuracy", "span"))[0]
    assert texts(browser, curve("latency", "text"))[-1].endswith(", sample 38,400")
    assert browser.run("document.querySelectorAll('.dot').length") == 7
    browser.point(*place(browser, curve("latency", "svg"), 0.6))
    assert texts(browser, curve("batch", "span")) != ["24"]
    browser.point(5, 5)
    assert browser.run("document.querySelectorAll('.dot').length") == 0
    assert texts(browser, curve("batch", "span")) == ["24"]
    assert browser.console == []


def test_a_tap_stays_until_another_place_is_tapped(shown):
    browser = shown(width=360, height=740)
    (x, y), touch = place(browser, curve("entropy", "svg"), 0.6), "Input.dispatchTouchEvent"
    browser.call("Emulation.setTouchEmulationEnabled", enabled=True)
    try:
        for points in ([{"x": x, "y": y}], []):
            browser.call(touch, type="touchStart" if points else "touchEnd", touchPoints=points)
        until(browser, "document.querySelectorAll('.dot').length", 7)
        x, y = place(browser, "#h-curves")
        for points in ([{"x": x, "y": y}], []):
            browser.call(touch, type="touchStart" if points else "touchEnd", touchPoints=points)
        until(browser, "document.querySelectorAll('.dot').length", 0)
    finally:
        browser.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_arrow_keys_read_curves_and_answers_aloud(shown, service):
    browser = shown()
    browser.run(f"document.querySelector('{curve('batch', 'svg')}').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowRight")
    assert browser.run(text("said")).startswith("Batch size 2 at ")
    browser.press("End")
    assert browser.run(text("said")).startswith("Batch size 24 at ")
    browser.press("ArrowLeft")
    assert "sample 38,336" in browser.run(text("said"))
    browser.press("Escape")
    assert browser.run("document.querySelectorAll('.dot').length") == 0
    browser.run("document.getElementById('answers').focus()")
    browser.press("ArrowLeft")
    assert browser.run(text("said")) == f"class {service.state['answers'][-1]}, the last"
    browser.press("Home")
    assert browser.run(text("said")) == "class 0, 599 samples before the last"
    assert browser.console == []


COLOURS_OF_ROWS = """(() => {
    const canvas = document.getElementById('answers');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const found = [];
    for (let y = 10; y < canvas.height; y += 40) {
        for (let x = 0; x < canvas.width; x += 1) {
            const i = 4 * (y * canvas.width + x);
            const colour = `${pixels[i]} ${pixels[i + 1]} ${pixels[i + 2]} ${pixels[i + 3]}`;
            if (pixels[i + 3] && found.at(-1) !== colour) found.push(colour);
        }
    }
    return found;
})()"""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("classes", [10, 100, 1000])
def test_each_answer_has_its_bar(shown, service, width, classes):
    service.state = state(600, classes)
    answers = service.state["answers"] = [(i * 7) % classes for i in range(600)]
    browser = shown(width=width)
    colours = browser.run(COLOURS_OF_ROWS)
    assert len(colours) == 600, "one bar for each sample, and neighbours that look different"
    different = len(set(answers))
    assert len(set(zip(answers, colours, strict=True))) == different, "a class keeps its colour"
    assert len(set(colours)) > 0.98 * different
    assert all(colour.endswith(" 255") for colour in colours)
    browser.point(*place(browser, "#answers", 0.999, 0.9))
    assert browser.run(text("answers-read")) == f"class {answers[-1]}, the last"
    assert browser.console == []


def test_runs_of_one_class_are_one_bar_and_the_ten_most_frequent_classes_are_named(shown, service):
    service.state["answers"] = [i // 50 for i in range(600)]
    service.state["model"]["classes"] = 12
    browser = shown()
    assert len(browser.run(COLOURS_OF_ROWS)) == 12
    assert browser.run(text("answers-words")) == "600 samples of 12 classes, 50 in a row on average"
    assert len(texts(browser, "#classes li")) == 10
    service.state["frequencies"] = [0.1, 0.2, 0.7] + [0.0] * 9
    until(browser, text("classes"), "class 270 %class 120 %class 010 %")
    widths = browser.run("[...document.querySelectorAll('#classes i')].map(one => one.getBoundingClientRect().width)")
    assert widths[1] / widths[0] == pytest.approx(2 / 7, abs=0.01)


def test_the_buttons_ask_for_what_they_say(shown, service):
    browser = shown()
    for selector in ('[data-do="snapshot"]', "#learning"):
        sent = len(service.controls)
        click(browser, selector)
        until(browser, text("result"), lambda value: value.endswith(": done"))
        assert len(service.controls) == sent + 1
    until(browser, text("learning"), "Learn")
    click(browser, "#learning")
    until(browser, text("learning"), "Freeze")
    assert [path for path, *_ in service.controls] == [f"/app/control/{one}" for one in ("snapshot", "freeze", "learn")]
    assert {json.dumps(rest) for _, *rest in service.controls} == {'[{}, null, "application/json"]'}
    assert browser.run("document.getElementById('result').getAttribute('role')") == "status"
    assert browser.console == []


@pytest.mark.parametrize(
    ("action", "question"), [("rollback", "Roll back to the last"), ("reset", "Reset to the source")]
)
def test_what_loses_something_is_confirmed_in_the_page(shown, service, action, question):
    browser = shown()
    button = f'[data-do="{action}"]'
    click(browser, button)
    assert browser.run(text("question")).startswith(question)
    assert browser.run("document.activeElement.id") == "no"
    click(browser, "#no")
    click(browser, button)
    browser.press("Escape")
    assert not browser.run("document.getElementById('sure').open")
    assert browser.run(f"document.activeElement.matches('{button}')"), "the focus returns"
    assert service.controls == []
    click(browser, button)
    click(browser, "#yes")
    until(browser, text("result"), f"{action}: done")
    assert [one[:2] for one in service.controls] == [(f"/app/control/{action}", {})]
    assert browser.console == []


def test_a_stream_can_be_chosen_and_stays_chosen(shown, service):
    service.state["streams"].append({"id": HOSTILE, "samples": 1, "batches": 1, "age": 1.0})
    browser = shown()
    assert texts(browser, "#stream option") == ["all streams", "gate", "yard", HOSTILE]
    browser.run("document.getElementById('stream').selectedIndex = 3")
    service.state["streams"].append({"id": "new", "samples": 1, "batches": 1, "age": 1.0})
    until(browser, "document.getElementById('stream').length", 5)
    click(browser, '[data-do="reset"]')
    assert browser.run(text("question")).startswith(f"Stream {HOSTILE}: Reset")
    click(browser, "#yes")
    until(browser, text("result"), "reset: done")
    assert service.controls[0][:2] == ("/app/control/reset", {"stream": HOSTILE})
    service.state["streams"] = service.state["streams"][:1]
    until(browser, "document.getElementById('which').hidden", True)
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), "snapshot: done")
    assert service.controls[1][:2] == ("/app/control/snapshot", {}), "a stream that is gone is not chosen any more"


def test_a_locked_service_gets_the_token_and_nothing_stores_it(shown, service):
    service.token, service.state["locked"] = "s3cret", True
    browser = shown()
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), "Expected the token, but got another. Enter the token.")
    assert browser.run("document.activeElement.id") == "token"
    browser.call("Input.insertText", text="wrong")
    click(browser, '[data-do="snapshot"]')
    until(
        browser, f"{text('result')} + document.activeElement.id", lambda value: value.endswith("Enter the token.token")
    )
    assert [given for _, _, given, _ in service.controls] == [None, "Bearer wrong"]
    browser.run("document.getElementById('token').select()")
    browser.call("Input.insertText", text="s3cret")
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), "snapshot: done")
    assert service.controls[-1][2] == "Bearer s3cret"
    assert browser.run("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_a_state_that_needs_a_token_is_asked_with_it(shown, service):
    service.code, service.state = 401, {"error": "Expected a token, but got none."}
    browser = shown(expected="lost")
    assert browser.run(text("state")).startswith("The service needs a token; retrying in")
    assert not browser.run("document.getElementById('lock').hidden")
    browser.run("document.getElementById('token').focus()")
    browser.call("Input.insertText", text="s3cret")
    service.code, service.state = 200, state(locked=True)
    browser.press("Enter")
    until(browser, text("state"), "live")
    assert service.asked[-1][1] == "Bearer s3cret"


@pytest.mark.parametrize(
    "answer",
    [None, [], "text", {"model": {}, "history": [None]}, {"model": {}, "events": [1, None, {}], "streams": [None]}],
)
def test_an_answer_that_is_no_state_is_told_and_survived(shown, service, answer):
    service.state = answer
    browser = shown(expected="lost")
    told = "The service sent what cannot be shown (" if isinstance(answer, dict) else "The service sent no state;"
    assert browser.run(text("state")).startswith(told)
    service.state = state()
    until(browser, text("state"), "live")
    assert panels(browser)[0] == "accuracy"


def test_a_failing_service_is_asked_less_and_less_often_and_its_last_values_stay(shown, service):
    browser = shown()
    service.code = 500
    for seconds in (1, 2, 4):
        start = f"The service answered with the error 500; retrying in {seconds} s. The values are those of "
        until(browser, text("state"), lambda value, start=start: value.startswith(start))
    assert cards(browser)["Samples"] == ["38,400", ""]
    service.code = 200
    until(browser, text("state"), "live")
    assert {line for line in browser.console if "500" not in line} == set()


def test_a_service_that_is_gone_is_told(shown, service):
    browser = shown()
    service.close()
    until(browser, text("state"), lambda value: value.startswith("Connection lost; retrying in "), 30)
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), lambda value: value.startswith("The service could not be reached"))


def test_nothing_is_asked_while_the_page_is_hidden(shown, service):
    browser = shown()
    other = browser.call("Target.createTarget", url="about:blank")["targetId"]
    browser.call("Target.activateTarget", targetId=other)
    until(browser, "document.hidden", True)
    time.sleep(0.3)  # what was on its way arrives
    before = len(service.asked)
    time.sleep(2.5)
    assert len(service.asked) == before
    browser.call("Target.closeTarget", targetId=other)
    browser.call("Page.bringToFront")
    until(browser, "document.hidden", False)
    before = service.asked[-1]
    until(browser, text("state"), lambda _: service.asked[-1] != before)


def hostile():
    """Return a state in which each text is hostile and long."""
    one = copy.deepcopy(state())
    one["model"] |= dict.fromkeys(("name", "method", "words", "network"), HOSTILE + "x" * 300)
    one["streams"] = [{"id": HOSTILE + "y" * 300, "samples": 10**15, "batches": 10**12, "age": 1e9}] * 2
    one["events"] = [{"time": 1e9, "kind": HOSTILE, "text": HOSTILE + "z" * 300}, {"time": None, "kind": None}]
    one["checkpoint"] = {"age": None, "step": None, "failures": 1, "error": HOSTILE + "w" * 300}
    return one


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_text_is_shown_and_does_not_run(shown, service, theme):
    service.state, service.reply = hostile(), HOSTILE
    browser = shown(width=360, theme=theme)
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), HOSTILE)
    assert HOSTILE in browser.run(text("name"))
    assert HOSTILE in browser.run(text("events"))
    assert HOSTILE in browser.run(text("streams"))
    assert HOSTILE in browser.run(text("cards"))
    assert browser.run("window.ran") is None
    assert browser.run("[document.images.length, document.scripts.length]") == [0, 1]
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.console == []


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
@pytest.mark.parametrize("classes", [10, 1000])
def test_no_width_scrolls_sideways(shown, service, width, classes):
    service.state = state(600, classes, locked=True)
    browser = shown(width=width, height=740)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("[...document.querySelectorAll('.scroll')].every(one => one.scrollWidth <= one.clientWidth)")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_in_both_themes(shown, service, theme):
    service.state = state(learning=False, locked=True)
    service.state["checkpoint"] |= {"failures": 1, "error": "No space left on device"}
    browser = shown(theme=theme)
    ground = browser.run("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == {"light": "rgb(253, 252, 249)", "dark": "rgb(23, 25, 28)"}[theme]
    browser.call("Input.insertText", text="")
    browser.run("document.getElementById('token').value = 'one'")
    browser.point(*place(browser, curve("entropy", "svg")))
    click(browser, '[data-do="snapshot"]')
    until(browser, text("result"), "snapshot: done")
    click(browser, '[data-do="reset"]')
    found = browser.run(CONTRAST)
    assert len(found) > 80
    assert found[0][0] >= 4.5, found[:5]
    browser.press("Escape")
    service.code = 500
    until(browser, "document.getElementById('state').dataset.is", "lost")
    found = browser.run(CONTRAST)
    assert found[0][0] >= 4.5, found[:5]


def test_a_service_without_batches_says_so(shown, service):
    nothing = {"latency": {"p50": None, "p95": None}, "streams": [], "history": [], "answers": [], "events": []}
    service.state = state(0, checkpoint={"age": None, "step": None, "failures": 0, "error": None}) | nothing
    browser = shown()
    assert panels(browser) == []
    assert browser.run("[...document.querySelectorAll('.muted')].map(one => one.innerText).filter(Boolean)") == [
        "No batch yet.", "No answer yet.", "No event yet.",
    ]  # fmt: skip
    assert texts(browser, "#streams th") == ["No stream yet."]
    assert cards(browser)["Latency, median"] == ["–", "95 %: – ms"]
    assert cards(browser)["Checkpoint"] == ["none yet", ""]
    browser.run("document.getElementById('answers').focus()")
    assert "NaN" not in browser.run("document.body.innerText")
    assert browser.console == []


def test_whatever_takes_the_focus_has_a_name(shown, service):
    service.state["locked"] = True
    browser = shown()
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    properties = [(one, {p["name"]: p["value"].get("value") for p in one.get("properties", [])}) for one in nodes]
    focusable = [one for one, known in properties if known.get("focusable") and one["role"]["value"] != "RootWebArea"]
    assert len(focusable) > 14
    unnamed = [one["role"]["value"] for one in focusable if not one.get("name", {}).get("value")]
    assert unnamed == ["main"], "the target of the link that skips the head"
    roles = {one["role"]["value"] for one in nodes}
    assert {"banner", "main", "region", "contentinfo", "status", "heading", "table"} <= roles
