"""The examples in the README, the pages and the docstrings run, and the public names are the promised ones."""

import doctest
import importlib
import logging
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delta_tta
from delta_tta import registry as words
from delta_tta.experiments import from_toml
from nets import CLASSES, batches, conv_net
from vision import timm, torchvision

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?```python\n(?P<code>.*?)```", re.S)
PAGES = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]
TESTED_ALONE = {
    f"docs/{name}.md"
    for name in ("quickstart", "data", "laboratory", "services", "serve", "architecture", "new-method")
}
"""Pages whose examples have a test of their own below."""


def examples(document):
    """The Python of a page; a comment before a block may say why it is not to be run."""
    found = [block["code"] for block in BLOCK.finditer((ROOT / document).read_text()) if block["why"] is None]
    assert found
    return [compile(example, document, "exec") for example in found]


@pytest.fixture
def components_forgotten():
    """Whatever words a page teaches, the next test does not know them."""
    known = dict(words.COMPONENTS)
    yield
    for name in words.COMPONENTS.keys() - known.keys():
        del words.COMPONENTS[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [torchvision.models.resnet18, lambda: timm.create_model("regnetx_002")],
    ids=["torchvision", "timm"],
)
def test_the_readme_runs(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = [torch.randn(16, 3, 64, 64) for _ in range(3)]
    first, *others = examples("README.md")
    names = {"model": model(), "stream": stream}
    exec(first, names)
    assert names["logits"].shape == (16, 1000)
    assert (tmp_path / "adapted.pt").stat().st_size > 0
    for example in others:
        exec(example, names)
    assert names["metrics"].class_mean_accuracy > 0.65  # the source: 0.57


@pytest.mark.slow
def test_the_quickstart_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}  # nothing but the page, from top to bottom
    for example in examples("docs/quickstart.md"):
        exec(example, names)
    shares = names["shares"]
    assert all(share > shares["source"] + 0.15 for method, share in shares.items() if method != "source")  # as it says
    assert not isinstance(names["plain"], delta_tta.Adapter)


@pytest.mark.slow
def test_the_page_on_data_runs(capsys):
    names = {}
    for example in examples("docs/data.md"):
        exec(example, names)
    assert capsys.readouterr().out.split()[1] == "2000"
    assert names["result"].class_mean_accuracy > 0.4
    assert names["foggy"].shape == (8, 32, 32, 3)


def test_the_page_on_the_laboratory_runs(capsys, tmp_path):
    for example in examples("docs/laboratory.md"):
        exec(example, {})
    assert capsys.readouterr().out.startswith("8 source on fog 5, IS+CB, seed 2020, B=64")
    (toml,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/laboratory.md").read_text(), re.S)
    (tmp_path / "experiment.toml").write_text(toml)
    experiment = from_toml(tmp_path / "experiment.toml")
    assert len(experiment.cells()) == 3 * 2 * 4 * 2
    assert experiment.cells()[0].samples == 1000


def test_the_page_on_services_runs(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    names = {"network": conv_net(), "stream": batches(5), "torch": torch}
    for example in examples("docs/services.md"):
        exec(example, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapted.pt", "checkpoints"]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000005.pt"]
    assert not caplog.records


def with_python():
    return [page for page in PAGES if any(block["why"] is None for block in BLOCK.finditer((ROOT / page).read_text()))]


@pytest.mark.parametrize("page", [page for page in with_python() if page not in TESTED_ALONE])
def test_the_other_pages_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # it would last beyond the test
    names = {"model": conv_net(), "network": conv_net(), "stream": batches(3), "torch": torch}
    for example in examples(page):
        exec(example, names)
    printed = capsys.readouterr().out
    for promised in re.findall("^# prints: (.*)$", (ROOT / page).read_text(), re.M):
        assert f"{promised}\n" in printed


def test_every_block_of_python_is_run_or_says_why_not():
    for page in PAGES:
        text = (ROOT / page).read_text()
        assert len(BLOCK.findall(text)) == len(re.findall(r"^ *(?:```|~~~) *py", text, re.M)), page
    assert set(with_python()) >= TESTED_ALONE


def anchors(page):
    """What a link may point at: headings as GitHub and the site name them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    headings = re.findall(r"^#+ +(.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_documents_lead_somewhere():
    root = [
        ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md")
    ]
    for page in [*root, *(ROOT / page for page in PAGES)]:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]+))?\)", text):
            if "://" not in target:
                there = page.parent / target if target else page
                assert there.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(there), f"{page.name}: {target}#{anchor}"


def test_a_new_component_is_one_class_and_one_line(components_forgotten):
    for example in examples("docs/architecture.md"):
        exec(example, {})
    adapter = delta_tta.adapt(conv_net(), "gini+delta")
    assert adapter(batches(1)[0]).shape == (12, CLASSES)
    assert 0 < adapter.signals.loss < 1
    assert "gini" in delta_tta.methods()


def test_the_page_on_a_new_method_runs(components_forgotten, capsys):
    names = {"network": conv_net(), "stream": batches(3)}
    for example in examples("docs/new-method.md"):
        exec(example, names)
    table = dict(line.split() for line in capsys.readouterr().out.splitlines()[1:])
    assert float(table["margin+delta"]) > float(table["margin"])


@pytest.mark.slow
def test_the_new_method_keeps_the_contract(tmp_path):
    """As the page says, but for the slow ones."""
    text = (ROOT / "docs/new-method.md").read_text()
    assert "python -m pytest -p margin tests/contract -k margin" in text
    (tmp_path / "margin.py").write_text(next(BLOCK.finditer(text))["code"])
    quietly = ("-q", "-n", "0", "-p", "no:cacheprovider")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "margin", "tests/contract", "-k", "margin", "-m", "not slow", *quietly],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
    )
    passed = re.search(r"(\d+) passed", run.stdout)
    assert run.returncode == 0, run.stdout
    assert passed is not None
    assert int(passed[1]) >= 20


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_the_network_for_nothing(tmp_path):
    # without --quiet, which would hide warnings from --strict, too
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES) + 3  # and those of the root of the repository
    for page in pages:
        html = page.read_text()
        fetched = re.findall(r"<(?:script|img|source|iframe)\b[^>]*\bsrc=\"?([^\s\">]+)", html)
        fetched += re.findall(r"<link\b[^>]*\bhref=\"?([^\s\">]+)", html)
        assert fetched
        assert not [url for url in fetched if "//" in url], page.name
        assert "@import" not in html
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style.name
    assert (tmp_path / "site" / "contributing.html").exists()


def test_importing_costs_little_more_than_torch():
    code = "import sys, delta_tta; print('torch._dynamo' in sys.modules, 'torchvision' in sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("False False\n", "")


def modules():
    return ["delta_tta", *(m.name for m in pkgutil.walk_packages(delta_tta.__path__, "delta_tta."))]


@pytest.mark.filterwarnings("ignore:delta_tta.bench is now:DeprecationWarning")
@pytest.mark.parametrize("name", modules())
def test_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_public_names():
    assert sorted(delta_tta.__all__) == [
        "Adapter",
        "Checkpointer",
        "DataError",
        "DeltaError",
        "Guard",
        "InputError",
        "MethodError",
        "ModelError",
        "PRESETS",
        "SettingError",
        "Settings",
        "Signals",
        "StateError",
        "StreamError",
        "SyncError",
        "adapt",
        "corruptions",
        "data",
        "functional",
        "load_state",
        "methods",
        "metrics",
        "models",
        "register_norm",
        "save_state",
        "streams",
    ]
    assert all(hasattr(delta_tta, name) for name in delta_tta.__all__)
