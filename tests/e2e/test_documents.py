"""The examples in the README and the docstrings run, and the public names are the promised ones."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delta_tta
from delta_tta import words
from delta_tta.bench import from_toml
from nets import CLASSES, batches, conv_net
from vision import timm, torchvision

ROOT = Path(__file__).parents[2]


def examples(document):
    found = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)
    assert found
    return [compile(example, document, "exec") for example in found]


@pytest.mark.parametrize(
    "model",
    [torchvision.models.resnet18, lambda: timm.create_model("regnetx_002")],
    ids=["torchvision", "timm"],
)
def test_the_readme_runs(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = [torch.randn(16, 3, 64, 64) for _ in range(3)]
    labels = [i % 4 for i in range(32)]
    dataset = torch.utils.data.TensorDataset(torch.randn(32, 3, 64, 64), torch.tensor(labels))
    names = {"model": model(), "stream": stream, "labels": labels, "dataset": dataset, "torch": torch}
    for example in examples("README.md"):
        exec(example, names)
    assert names["logits"].shape == (16, 1000)
    assert (tmp_path / "adapted.pt").stat().st_size > 0


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


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_new_word_is_one_class_and_one_line():
    known = dict(words.WORDS)
    try:
        for example in examples("docs/architecture.md"):
            exec(example, {})
        adapter = delta_tta.adapt(conv_net(), "gini+delta")
        assert adapter(batches(1)[0]).shape == (12, CLASSES)
        assert 0 < adapter.signals.loss < 1
        assert "gini" in delta_tta.methods()
    finally:
        for name in words.WORDS.keys() - known.keys():
            del words.WORDS[name]


def test_importing_costs_little_more_than_torch():
    code = "import sys, delta_tta; print('torch._dynamo' in sys.modules, 'torchvision' in sys.modules)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("False False\n", "")


def modules():
    return ["delta_tta", *(m.name for m in pkgutil.walk_packages(delta_tta.__path__, "delta_tta."))]


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
        "load_state",
        "methods",
        "metrics",
        "models",
        "register_norm",
        "save_state",
        "streams",
    ]
    assert all(hasattr(delta_tta, name) for name in delta_tta.__all__)
