"""The report's page in a real browser: what it draws, and what a reader can do with it."""

import math
import random
from dataclasses import replace

import pytest
from chromium import chromium, find

from delta_tta.report.page import write_page
from delta_tta.report.shown import Column, Figure, Number, Panel, Report, Row, Series, Strip, Strips, Table

PROGRAM = find()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium found: install chromium or google-chrome")

NAN = float("nan")
HOSTILE = '<img src=x onerror="window.ran=1"></script><script>window.ran=2</script><!-- & \' \u2028'


def realistic():
    draw = random.Random(0)
    table = Table(
        "table-2",
        "Table 2: class-mean accuracy",
        (Column("IS+CB"), Column("ρ = 0.5", "DS+CB"), Column("ρ = 0.1", "DS+CB")),
        (
            Row("Source", (Number(53.6, paper=53.5), Number(53.6), Number(53.6))),
            Row("BN adapt", (Number(64.3, 0.1), Number(27.3, 0.4, gain=-26.3, paper=27.0, paper_std=0.3), None)),
            Row(
                "TENT", (Number(68.5, 0.2, gain=4.2), Number(23.7, 0.6, runs=3, of=10), Number(NAN, paper=18.0, runs=0))
            ),
            Row("TENT + DELTA", (Number(69.5, 0.1, True, 1.0), Number(9.25, 0.1, gain=0.0), Number(66.6, best=True))),
        ),
        note="ResNeXt-29, severity 5.",
    )
    wide = Table(
        "table-7",
        "Table 7: each corruption",
        tuple(Column(f"corruption {i}", f"group {i // 4}") for i in range(16)),
        tuple(Row(name, tuple(Number(draw.uniform(20, 80), 0.3) for _ in range(16))) for name in ("Source", "TENT")),
    )
    x = tuple(float(64 * i) for i in range(1, 31))
    lines = tuple(
        Panel(
            title,
            "samples seen",
            "accuracy (%)",
            (
                Series("Source", x, (53.6,) * 30),
                Series("TENT", x, tuple(60 - i / 2 if i != 7 else NAN for i in range(30))),
                Series("TENT + DELTA", x, tuple(60 + i / 4 for i in range(30))),
            ),
        )
        for title in ("IS+CB", "DS+CB")
    )
    sizes = (1.0, 2.0, 8.0, 64.0, 200.0)
    sweep = Panel("Batch size", "batch size", "accuracy (%)", (Series("TENT", sizes, (9, 20, 41, 60, 68)),), log_x=True)
    scatter = Panel("Momentum", "α", "accuracy (%)", (Series("TENT + DELTA", (0.9, 0.95), (61.0, 64.5)),), "points")
    bars = Panel(
        "By corruption", "corruption", "points",
        (Series("TENT", (0.0, 1.0, 2.0), (1.5, -2.25, 3.0)), Series("LAME", (0.0, 1.0, 2.0), (0.5, 1.0, NAN))),
        "bar", ticks=((0.0, "fog"), (1.0, "frost"), (2.0, "snow")),
    )  # fmt: skip
    stream = tuple(i // 25 % 10 for i in range(500))
    names = tuple(f"animal {i}" for i in range(10))
    many = tuple(draw.randrange(100) for _ in range(300))
    return Report(
        "DELTA, run again",
        "CIFAR100-C at severity 5, ten seeds.",
        (
            table,
            wide,
            Figure("figure-stream", "Accuracy over the stream", lines, note="Trailing mean."),
            Figure("figure-sweeps", "Sweeps", (sweep, scatter, bars)),
            Strips("streams", "The streams", (Strip("DS+CB", stream), Strip("IS+CB", stream[::-1])), names),
            Strips("streams-100", "A hundred classes", (Strip("IS+CB", many),), tuple(map(str, range(100)))),
        ),
        {"PyTorch": "2.13", "Time": "41 min"},
    )


@pytest.fixture(scope="module")
def browser():
    with chromium(PROGRAM) as one:
        yield one


@pytest.fixture
def shown(browser, tmp_path):
    """Return a function that opens a report and returns the browser."""

    def show(report, **looks):
        write_page(report, tmp_path / "report.html")
        browser.look(**looks)
        browser.open(tmp_path / "report.html")
        return browser

    yield show
    browser.run("try { localStorage.clear() } catch {}")


@pytest.fixture
def page(shown):
    return shown(realistic())


def place(browser, selector, across=0.5, down=0.5):
    """Scroll an element into view and return a point on it."""
    script = f"""(() => {{
        const element = document.querySelector({selector!r});
        element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
        const box = element.getBoundingClientRect();
        return [box.left + box.width * {across}, box.top + box.height * {down}];
    }})()"""
    at = browser.run(script)
    browser.drawn()  # a scroll hides the tooltip: let it come before the pointer does
    return at


def click(browser, selector):
    browser.click(*place(browser, selector))


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({selector!r})].map(one => one.textContent)")


def tip(browser):
    """Return the lines of the tooltip, or None where there is none."""
    text = browser.run("(box => box.hidden ? null : box.innerText)(document.getElementById('ui-tip'))")
    return text and [line for line in text.split("\n") if line]


def rows(browser):
    return texts(browser, "#table-2 tbody th")


def test_every_exhibit_is_drawn_and_nothing_is_asked_of_the_network(page, tmp_path):
    assert page.console == []
    assert page.requests == [(tmp_path / "report.html").as_uri()]
    assert page.run("[...document.querySelectorAll('.exhibit')].map(one => one.id)") == [
        "table-2", "table-7", "figure-stream", "figure-sweeps", "streams", "streams-100",
    ]  # fmt: skip
    assert page.run("document.title") == "DELTA, run again"
    assert page.run("document.querySelectorAll('#figure-stream svg.plot').length") == 2
    assert page.run("document.querySelectorAll('#figure-sweeps svg.plot').length") == 3
    assert page.run("document.querySelectorAll('.stack canvas').length") == 3
    assert "NaN" not in page.run("document.body.outerHTML.replace(/<script[^]*?<.script>/g, '')")
    assert texts(page, ".about dt") == ["PyTorch", "Time"]
    assert page.run("[...document.querySelectorAll('.contents a')].every(one => document.querySelector(one.hash))")


def test_the_policy_of_the_page_refuses_the_network(page):
    assert page.run("fetch('data:,x').then(() => 'fetched', () => 'refused')") == "refused"
    assert any("Content Security Policy" in line for line in page.console)


def test_a_cell_shows_its_deviation_its_gain_and_the_papers_number(page):
    cells = page.run("[...document.querySelectorAll('#table-2 tbody tr')].map(r => [...r.cells].map(c => c.innerText))")
    assert cells[0][1].split() == ["53.6", "paper", "53.5", "(+0.1)"]
    assert cells[1][2].split() == ["27.3", "±0.4", "−26.3", "paper", "27.0", "±0.3", "(+0.3)"]
    assert cells[1][3] == "–"
    assert cells[2][3].split() == ["–", "paper", "18.0"]
    assert texts(page, "#table-2 td strong") == ["69.5", "66.6"]
    assert texts(page, "#table-2 .gain") == ["−26.3", "+4.2", "+1.0", "0.0"]
    assert page.run("document.querySelector('#table-2 abbr').title") == "Not final: 3 of 10 runs"
    heads = page.run(
        "[...document.querySelectorAll('#table-2 .groups > *')].map(one => [one.textContent, one.colSpan])"
    )
    assert heads == [["", 1], ["", 1], ["DS+CB", 2]]


def test_a_head_sorts_up_then_down_then_not(page):
    head = "#table-2 thead tr:last-child th:nth-child(3)"
    original = rows(page)
    seen = []
    for _ in range(3):
        click(page, f"{head} button")
        seen.append((page.run(f"document.querySelector('{head}').getAttribute('aria-sort')"), rows(page)))
    up = ["TENT + DELTA", "TENT", "BN adapt", "Source"]
    assert seen == [("ascending", up), ("descending", up[::-1]), ("none", original)]


def test_a_head_sorts_by_keyboard_and_what_has_no_number_stays_last(page):
    page.run("document.querySelector('#table-2 thead tr:last-child th:nth-child(4) button').focus()")
    page.press("Enter")
    assert rows(page) == ["Source", "TENT + DELTA", "BN adapt", "TENT"]
    page.press("Enter")
    assert rows(page) == ["TENT + DELTA", "Source", "BN adapt", "TENT"]
    click(page, "#table-2 thead .label button")
    assert rows(page) == ["BN adapt", "Source", "TENT", "TENT + DELTA"]
    sorts = page.run("[...document.querySelectorAll('#table-2 [aria-sort]')].map(one => one.getAttribute('aria-sort'))")
    assert sorts == ["ascending", "none", "none", "none"]


def test_a_legend_button_hides_its_series_everywhere(page):
    count = "document.querySelectorAll('.series[data-series=\"TENT\"]').length"
    pressed = "[...document.querySelectorAll('[data-series=\"TENT\"].entry')].map(one => one.ariaPressed)"
    assert (page.run(count), page.run(pressed)) == (4, ["true", "true"])
    click(page, "#figure-stream .entry[data-series=TENT]")
    assert (page.run(count), page.run(pressed)) == (0, ["false", "false"])
    assert page.run("document.querySelectorAll('.series[data-series=\"Source\"]').length") == 2
    click(page, "#figure-sweeps .entry.all")
    assert (page.run(count), page.run(pressed)) == (4, ["true", "true"])
    for label in ("Source", "TENT", "TENT + DELTA", "LAME"):
        page.run(f"document.querySelector('.entry[data-series=\"{label}\"]').click()")
    assert page.run("document.querySelectorAll('.series').length") == 0
    assert page.console == []


def test_a_method_looks_the_same_in_every_figure_and_source_is_grey(page):
    colours = page.run("""(() => {
        const found = {};
        for (const one of document.querySelectorAll('.series')) {
            (found[one.dataset.series] ??= []).push(getComputedStyle(one).color);
        }
        return found;
    })()""")
    assert all(len(set(own)) == 1 for own in colours.values())
    assert len({own[0] for own in colours.values()}) == 4
    channels = [int(one) for one in colours["Source"][0].removeprefix("rgb(").removesuffix(")").split(",")]
    assert max(channels) - min(channels) < 12


def test_the_switch_hides_the_papers_numbers(page):
    shown = "[...document.querySelectorAll('.paper, .paper-key')].filter(one => one.offsetParent).length"
    assert page.run(shown) == 4
    click(page, "#ui-paper")
    assert page.run(shown) == 0
    assert page.run("document.getElementById('ui-paper').ariaChecked") == "false"
    click(page, "#ui-paper")
    assert page.run(shown) == 4


def test_the_theme_follows_the_system_until_the_reader_chooses(page, tmp_path):
    benchmark = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.run(benchmark)
    page.look(theme="dark")
    dark = page.run(benchmark)
    assert dark != light
    click(page, "#ui-theme")
    assert page.run(benchmark) == light
    page.open(tmp_path / "report.html")
    assert page.run(benchmark) == light, "the choice is remembered"
    page.look(theme="light", media="print")
    page.run("document.documentElement.dataset.theme = 'dark'")
    assert page.run(benchmark) == "rgb(255, 255, 255)", "paper is white"


def test_the_pointer_reads_every_visible_series(page):
    page.point(*place(page, "#figure-stream svg.plot", across=0.999))
    assert tip(page) == ["samples seen 1,920", "TENT + DELTA", "67.3", "Source", "53.6", "TENT", "45.5"]
    assert page.run("document.querySelectorAll('.crosshair circle').length") == 3
    page.point(5, 5)
    assert tip(page) is None
    assert page.run("document.querySelectorAll('.crosshair circle').length") == 0
    page.point(*place(page, "#figure-sweeps .panel:nth-child(3) svg.plot", across=0.55))
    assert tip(page) == ["frost", "TENT", "−2.25", "LAME", "1.00"]
    page.point(*place(page, "#figure-sweeps .panel:nth-child(2) svg.plot", across=0.9, down=0.1))
    assert tip(page) == ["α 0.95", "TENT + DELTA", "64.50"]


def test_arrow_keys_read_a_figure_and_a_stream(page):
    place(page, "#figure-stream svg.plot")
    page.run("document.querySelector('#figure-stream svg.plot').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    assert tip(page)[0] == "samples seen 128"
    page.press("End")
    page.press("ArrowLeft")
    assert tip(page)[0] == "samples seen 1,856"
    page.press("Escape")
    assert tip(page) is None
    place(page, "#streams canvas")
    page.run("document.querySelector('#streams .stack canvas').focus()")
    page.press("End")
    assert tip(page) == ["Sample 500", "animal 9"]


def test_the_pointer_reads_a_stream_and_a_class_can_be_picked_out(page):
    page.point(*place(page, "#streams .stack canvas", across=0.101))
    assert tip(page) == ["Sample 51", "animal 2"]
    assert texts(page, "#streams .entry") == [f"animal {i}" for i in range(10)]
    assert texts(page, "#streams-100 .ramp span") == ["0", "99"]
    alpha = (
        "[0, 30].map(x => document.querySelector('.stack canvas').getContext('2d').getImageData(x, 0, 1, 1).data[3])"
    )
    assert page.run(alpha) == [255, 255]
    click(page, "#streams .entry:nth-child(2)")
    first, second = page.run(alpha)
    assert first < 60
    assert second == 255
    click(page, "#streams .entry:nth-child(2)")
    assert page.run(alpha) == [255, 255]


def test_the_values_of_a_figure_can_be_read_as_a_table(page):
    page.run("document.querySelector('#figure-sweeps .values').open = true")
    page.drawn()
    assert texts(page, "#figure-sweeps .plain")[2].startswith("By corruption: pointscorruptionTENTLAMEfog1.50")
    assert "TENT from −2.25 to 3, last 3" in page.run(
        "document.querySelectorAll('#figure-sweeps svg.plot')[2].ariaLabel"
    )


@pytest.mark.parametrize("width", [390, 320, 768])
def test_a_narrow_window_scrolls_tables_not_the_page(shown, width):
    browser = shown(realistic(), width=width, height=800)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("(box => box.scrollWidth > box.clientWidth)(document.querySelector('#table-7 .scroll'))")
    browser.run("document.querySelector('#table-7 .scroll').scrollLeft = 300")
    left = "document.querySelector('#table-7 tbody th').getBoundingClientRect().left"
    assert browser.run(left) == browser.run("document.querySelector('#table-7 .scroll').getBoundingClientRect().left")
    assert not browser.run("document.querySelector('.contents details').open")


# Every text against what lies behind it, colours resolved by painting them.
CONTRAST = """(() => {
    const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const painted = (colours) => {
        pen.clearRect(0, 0, 1, 1);
        for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
        return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const bright = (colour) => colour.map(one => one / 255)
        .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
        .reduce((sum, one, i) => sum + one * [0.2126, 0.7152, 0.0722][i], 0);
    const worst = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const element = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !element.checkVisibility({ checkOpacity: true })) continue;
        if (element.closest('script, noscript, .unseen, .skip')) continue;
        const grounds = [];
        for (let one = element; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
        const style = getComputedStyle(element);
        const ink = element instanceof SVGElement ? style.fill : style.color;
        const [a, b] = [bright(painted(grounds)), bright(painted([...grounds, ink]))];
        worst.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.outerHTML.slice(0, 120)]);
    }
    return worst.sort((a, b) => a[0] - b[0]);
})()"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_can_be_read_in_both_themes(shown, theme):
    browser = shown(realistic(), theme=theme)
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.run("document.querySelector('.entry[data-series=LAME]').click()")
    browser.point(*place(browser, "#figure-stream svg.plot"))
    found = browser.run(CONTRAST)
    assert len(found) > 200
    assert found[0][0] >= 4.5, found[:5]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_marks_can_be_seen_in_both_themes(shown, theme):
    browser = shown(realistic(), theme=theme)
    script = """[...Array(7).keys()].map(i => `--method-${i}`).concat('--source').map(name => {
        const probe = document.body.appendChild(document.createElement('i'));
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
    }).concat(getComputedStyle(document.documentElement).backgroundColor)"""
    *marks, benchmark = [luminance(colour) for colour in browser.run(script)]
    for mark in marks:
        assert (max(mark, benchmark) + 0.05) / (min(mark, benchmark) + 0.05) >= 3


def luminance(colour):
    channels = [int(one) / 255 for one in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_hostile_text_is_shown_and_does_not_run(shown):
    number = Number(1.0, 0.1, True, 0.1, 1.0, 0.1, 1, 2)
    table = Table("t", HOSTILE, (Column(HOSTILE, HOSTILE),), (Row(HOSTILE, (number,)),), HOSTILE, HOSTILE)
    panel = Panel(HOSTILE, HOSTILE, HOSTILE, (Series(HOSTILE, (1.0,), (1.0,)),), "line", False, ((1.0, HOSTILE),))
    exhibits = (
        table,
        Figure("f", HOSTILE, (panel,), HOSTILE),
        Strips("s", HOSTILE, (Strip(HOSTILE, (0, 1)),), (HOSTILE, HOSTILE), HOSTILE),
    )
    browser = shown(Report(HOSTILE, HOSTILE, exhibits, {HOSTILE: HOSTILE}))
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.point(*place(browser, "#f svg.plot"))
    assert HOSTILE in browser.run("document.getElementById('ui-tip').textContent")
    assert browser.run("document.title").startswith("<img src=x onerror")
    assert {*texts(browser, "h1, .lead, .note, #t tbody th, .about dd, #f .entry[data-series], #s .entry")} == {HOSTILE}
    assert browser.run("window.ran") is None
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.scripts.length") == 2
    assert browser.console == []
    browser.look(width=390)
    assert browser.run("document.documentElement.scrollWidth") <= 390


def test_what_is_empty_or_not_a_number_breaks_nothing(shown):
    nothing = Series("TENT", (), ())
    lost = Series("Source", (0.0, 1.0, NAN), (NAN, math.inf, 1.0))
    alone = Series("BN adapt", (0.0, 10.0, 20.0), (5.0, NAN, 5.0))
    panels = tuple(
        Panel("", "", "", series, mark, log)
        for series in ((), (nothing,), (lost,), (alone, lost))
        for mark in ("line", "points", "bar")
        for log in (False, True)
    )
    exhibits = (
        Table("t", "Nothing", (), ()),
        Table(
            "u", "Lost", (Column("a"),), (Row("Source", (Number(NAN, NAN, gain=NAN, paper=NAN),)), Row("TENT", (None,)))
        ),
        Figure("f", "Lost", panels),
        Figure("g", "No panels", ()),
        Strips("s", "No strips", (), ()),
        Strips("z", "No samples", (Strip("IS", ()), Strip("DS", (0,))), ()),
    )
    browser = shown(Report("", "", exhibits))
    for i in range(0, len(panels), 5):
        browser.point(*place(browser, f"#f .panel:nth-child({i + 1}) svg.plot"))
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
    browser.drawn()
    assert browser.console == []
    assert "NaN" not in browser.run("document.querySelector('main').outerHTML")
    empty = shown(replace(realistic(), exhibits=(), about={}))
    assert empty.console == []
    assert "Nothing to show yet" in empty.run("document.body.innerText")


def test_a_link_to_an_exhibit_leads_there(page):
    page.run("document.querySelector('.contents a[href=\"#figure-stream\"]').click()")
    page.drawn()
    assert page.run("location.hash") == "#figure-stream"
    assert abs(page.run("document.getElementById('figure-stream').getBoundingClientRect().top")) < 60


def test_a_page_that_may_not_remember_still_changes_its_theme(browser, shown):
    refuse = "Object.defineProperty(window, 'localStorage', { get() { throw new Error('refused'); } })"
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=refuse)
    try:
        page = shown(realistic())
        benchmark = "getComputedStyle(document.documentElement).backgroundColor"
        light = page.run(benchmark)
        click(page, "#ui-theme")
        assert page.run(benchmark) != light
        assert page.console == []
    finally:
        browser.call("Page.removeScriptToEvaluateOnNewDocument", **script)


def test_without_javascript_the_page_says_so(browser, tmp_path):
    write_page(realistic(), tmp_path / "report.html")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(tmp_path / "report.html", draws=False)
        said = browser.run("document.body.innerText")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "DELTA, run again" in said
    assert "JavaScript, which is turned off" in said
