"""The examples run as their first lines say, and do what they claim."""

import json
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import delta_tta
from all_methods import fitting
from delta_tta import data, models, streams
from delta_tta import experiments as bench
from vision import torchvision


def needs(package):
    """Leave a test out where its large packages are not installed; `make examples` installs them."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"no {package}: make examples installs it")


EXAMPLES = Path(__file__).parents[2] / "examples"
HELPERS = Path(__file__).parents[1]


@pytest.fixture
def example(monkeypatch, capsys):
    """Run an example in this process; return the lines it printed."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


def elsewhere(code, *arguments, folder):
    """Run code in another process: libraries that warn and change global state stay out of this one."""
    done = subprocess.run(
        [sys.executable, "-c", f"import vision, runpy, sys\n{code}", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1200,
        cwd=folder,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HELPERS), os.environ.get("PYTHONPATH", "")]),
            "HF_HOME": str(folder / "hub"),
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def blurred():
    """Embedded images under motion blur, 20 of each class one after another."""
    drifted = data.Corrupted(data.Subset(data.demo(), 200), "motion_blur", 5)
    order = np.argsort(drifted.labels, kind="stable")
    return drifted.take(order)


@pytest.fixture(scope="module")
def clip(blurred, tmp_path_factory):
    """A video of every second image, 4 times as large, with black beside the picture."""
    path = tmp_path_factory.mktemp("clip") / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 25, (160, 128))
    for image in blurred[::2]:
        frame = np.zeros((128, 160, 3), np.uint8)
        frame[:, 16:144] = image.repeat(4, 0).repeat(4, 1)[:, :, ::-1]
        writer.write(frame)
    writer.release()
    return path


def pictures(path):
    video = cv2.VideoCapture(str(path))
    found = []
    while (frame := video.read())[0]:
        found.append(frame[1])
    return np.stack(found)


def by_hand(method, clip, batch):
    """Labels and confidences of the clip's frames, without the example's code."""
    named = models.load("resnet20-cifar10")
    middle = pictures(clip)[:, :, 16:144, ::-1].astype(np.float32)
    small = middle.reshape(-1, 32, 4, 32, 4, 3).mean((2, 4)).round().astype(np.uint8)
    x = named.normalisation(torch.from_numpy(small).permute(0, 3, 1, 2))
    model = fitting(named.model, method, "cifar10-c")
    p = torch.cat([model(part) for part in x.split(batch)]).softmax(1)
    names = data.demo().classes
    return [names[k] for k in p.argmax(1)], p.amax(1).tolist()


def test_video(example, clip, tmp_path):
    lines = example("video.py", clip, tmp_path / "out.mp4", "--batch", 24)
    labels, confidence = by_hand(None, clip, 24)
    rows = [line.split("\t") for line in lines[:-1]]
    assert [row[2] for row in rows] == labels
    assert [float(row[3]) for row in rows] == pytest.approx(confidence, abs=0.02)  # rounding of the smaller picture
    assert [row[1] for row in rows][:2] == ["0.00 s", "0.04 s"]
    assert labels != by_hand("source", clip, 24)[0]
    assert lines[-1].startswith(f"# 100 frames in {tmp_path / 'out.mp4'}: ")

    before, after = pictures(clip).astype(int), pictures(tmp_path / "out.mp4").astype(int)
    assert after.shape == before.shape
    change = np.abs(after - before).mean((0, 3))
    assert change[:16, 16:144].mean() > 5 * change[24:].mean()  # the label covers the top, the rest is the video


def test_camera_answers_alike_in_the_background_and_the_foreground(example, clip):
    lines = example("camera.py", "--source", clip, "--frames", 90, "--fps", 0)
    labels, _ = by_hand(None, clip, 1)
    assert labels[64:90] != by_hand("source", clip, 1)[0][64:90]  # learnt after 64 frames
    changes = [f"frame {i}: {k}" for i, k in enumerate(labels[:90]) if i == 0 or k != labels[i - 1]]
    assert lines[:-2] == changes
    assert lines[-2] == "90 frames, learning in the background, 90 samples answered"
    percentiles = [float(part.split()[-1]) for part in lines[-1].split(",")]
    assert len(percentiles) == 4
    assert 0 < percentiles[0] <= percentiles[1] <= percentiles[2] <= percentiles[3]

    again = example("camera.py", "--source", clip, "--frames", 90, "--fps", 0, "--foreground")
    assert again[:-2] == changes
    assert again[-2] == "90 frames, learning in the foreground, 90 samples answered"


@pytest.fixture(scope="module")
def photos(blurred, tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number, image in enumerate(blurred[::10]):
        place = folder / "train" / f"{number // 10}"  # two classes for who reads folders as classes
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).resize((64, 48)).save(place / f"{number:02}.png")
    return folder


def test_pretrained_of_torchvision_with_weights_from_a_file(example, photos, tmp_path):
    network = torchvision.models.mobilenet_v3_small()
    network.train()(torch.randn(16, 3, 64, 64))  # so that its statistics are not those of no data
    network.classifier[-1].weight.data *= 300  # so that it is sure of something
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    arguments = ["--model", "torchvision:mobilenet_v3_small", "--weights", tmp_path / "weights.pt", "--batch", "12"]
    lines = example("pretrained.py", photos, *arguments)

    preprocess = torchvision.models.MobileNet_V3_Small_Weights.DEFAULT.transforms()
    paths = sorted(photos.rglob("*.png"))
    x = torch.stack([preprocess(Image.open(path)) for path in paths])
    model = delta_tta.adapt(network.eval(), "tent+delta", "imagenet-c")
    p = torch.cat([model(part) for part in x.split(12)]).softmax(1)
    names = torchvision.models.ResNet50_Weights.DEFAULT.meta["categories"]
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    assert [row[0] for row in rows] == [str(path.relative_to(photos)) for path in paths]
    assert [row[1] for row in rows] == [names[k] for k in p.argmax(1)]
    assert [float(row[2]) for row in rows] == pytest.approx(p.amax(1).tolist(), abs=2e-3)
    assert len({row[1] for row in rows}) > 1
    assert [line.split(",")[0] for line in lines if line.startswith("#")] == [
        "# batch 1: 12 images so far",
        "# batch 2: 20 images so far",
    ]
    assert ", loss " in lines[12]
    assert lines[-1].endswith("share learnt from 1.000")


def test_pretrained_of_timm_says_that_random_weights_mean_nothing(example, photos):
    lines = example("pretrained.py", photos, "--model", "timm:resnet10t", "--random", "--batch", "10")
    assert lines[0].startswith("Random weights: ")
    assert len(lines) == 1 + 20 + 2
    assert lines[11].startswith("# batch 1: 10 images so far, loss ")
    assert lines[11].endswith("share learnt from 1.000")


@pytest.mark.slow
def test_edge(example, tmp_path):
    plain, adapted = example("edge.py", tmp_path / "model.onnx", "--images", 640)
    before, after = (float(line.split("\t")[1].split(" %")[0]) for line in (plain, adapted))
    assert after > before + 5
    assert (tmp_path / "model.npz").is_file()


# torch's exporter warns about its own use of older interfaces
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx_export(example, tmp_path):
    lines = example("onnx_export.py", tmp_path / "adapted.onnx", "--images", 400)
    before, adapted, exported = (float(line.split("\t")[1].split(" %")[0]) for line in lines[:3])
    assert adapted > before + 5
    assert exported == adapted

    named = models.load("resnet20-cifar10")
    drifted = data.Corrupted(data.Subset(data.demo(), 400), "motion_blur", 5)
    first, second = np.array_split(np.random.default_rng(0).permutation(400), 2)
    model = delta_tta.adapt(named.model, "tent+delta", "cifar10-c")
    for images, _ in drifted.batches(first, 50):
        model(named.normalisation(images))
    ((images, _),) = drifted.batches(second[:7], 7)
    x = named.normalisation(images)
    session = onnxruntime.InferenceSession(tmp_path / "adapted.onnx", providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert np.allclose(logits, model.predict(x).numpy(), rtol=1e-3, atol=1e-3)


@needs("lightning")
def test_lightning_predicts_as_a_plain_loop(tmp_path):
    arguments = [EXAMPLES / "lightning_predict.py", "--images", 300, "--batch", 50]
    lines = elsewhere(
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')", *arguments, folder=tmp_path
    )
    named = models.load("resnet20-cifar10")
    drifted = data.in_memory(data.Corrupted(data.Subset(data.demo(), 300), "motion_blur", 5))
    order = streams.stream(drifted.labels, "DS+CB", rho=0.1)
    expected = []
    for method in ("source", "tent+delta"):
        result = bench.evaluate(named, method, drifted, order, batch_size=50, preset="cifar10-c")
        expected.append(f"{method}\t{100 * result.class_mean_accuracy:.2f} % of 300 images, 6 batches")
    assert lines == expected


HUGGINGFACE = """
import contextlib, io, json, torch, delta_tta
from pathlib import Path
from PIL import Image
from datasets import Dataset
from transformers import ConvNextImageProcessor, ResNetConfig, ResNetForImageClassification

pytestmark = pytest.mark.slow

example, photos = sys.argv[1:]

def run(*arguments):
    sys.argv = [example, *arguments]
    said, ended = io.StringIO(), None
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(example, run_name="__main__")
        except SystemExit as error:
            ended = str(error.code)
    return {"lines": said.getvalue().splitlines(), "ended": ended}

torch.manual_seed(1)
config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
network = ResNetForImageClassification(config)
network.train()(pixel_values=torch.randn(16, 3, 32, 32))
network.classifier[-1].weight.data *= 20
processor = ConvNextImageProcessor(size={"shortest_edge": 32})
network.eval().save_pretrained("model")
processor.save_pretrained("model")
pictures = [Image.open(path) for path in sorted(Path(photos).rglob("*.png"))]
Dataset.from_dict({"image": pictures}).save_to_disk("saved")
Dataset.from_dict({"text": ["a"]}).save_to_disk("texts")

x = processor(images=pictures, return_tensors="pt")["pixel_values"]
inner, network.forward = network.forward, lambda images: inner(pixel_values=images).logits
model = delta_tta.adapt(network, "tent+delta", "imagenet-c")
labels = torch.cat([model(part) for part in x.split(12)]).argmax(1).tolist()
runs = {
    "saved": run("--model", "model", "--data", "saved", "--batch", "12"),
    "folder": run("--model", "model", "--data", f"imagefolder:{photos}", "--split", "train", "--batch", "12"),
    "random": run("--random"),
    "texts": run("--model", "model", "--data", "texts"),
    "nothing": run(),
}
print(json.dumps({"labels": labels, **runs}))
"""


@needs("transformers")
def test_huggingface(photos, tmp_path):
    """A tiny random network: saved, loaded and adapted as a published one would be."""
    found = json.loads(elsewhere(HUGGINGFACE, EXAMPLES / "huggingface.py", photos, folder=tmp_path)[-1])
    labels = [f"LABEL_{k}" for k in found["labels"]]
    assert len(set(labels)) > 1
    for run in ("saved", "folder"):
        assert found[run]["ended"] is None, found[run]
        rows = [line.split("\t") for line in found[run]["lines"] if line.count("\t") == 2]
        assert [row[0] for row in rows] == [str(i) for i in range(20)]
        assert [row[1] for row in rows] == labels
        assert [line.split(":")[0] for line in found[run]["lines"] if line.startswith("#")] == [
            "# batch 1",
            "# batch 2",
        ]
    assert any(line.startswith("Random weights: ") for line in found["random"]["lines"])
    assert sum(line.count("\t") == 2 for line in found["random"]["lines"]) == 100
    assert "expected a column 'image' in texts, but it has text" in found["texts"]["lines"][-1]
    assert "expected --data" in found["nothing"]["lines"][-1]


def results(notebook):
    """What the story's table says, by stream: source, tent, tent+delta."""
    printed = [
        line
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
        for line in "".join(output["text"]).splitlines()
    ]
    rows = [line.split() for line in printed if line.startswith(("IS+", "DS+"))]
    return {name: [float(value) for value in values] for name, *values in rows}


@needs("nbclient")
def test_the_story_is_still_true(tmp_path):
    """Run again from nothing, the notebook comes to what it shows."""
    notebook = json.loads((EXAMPLES / "story.ipynb").read_text())
    kept = results(notebook)
    drawn = [output["data"] for cell in notebook["cells"] for output in cell.get("outputs", ()) if "data" in output]
    assert sum("image/png" in one for one in drawn) == 5
    assert sum(len(one.get("image/png", "")) for one in drawn) < 300_000
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    (tmp_path / "story.ipynb").write_text(json.dumps(notebook))
    elsewhere("from nbclient.cli import main; main()", "--inplace", "story.ipynb", folder=tmp_path)

    found = results(json.loads((tmp_path / "story.ipynb").read_text()))
    assert list(found) == ["IS+CB", "DS+CB", "DS+CI"]
    for name in found:
        assert found[name] == pytest.approx(kept[name], abs=1.5)  # other processors round differently
    (source, tent, delta), (source_ds, tent_ds, delta_ds), (_, tent_ci, delta_ci) = found.values()
    assert tent > source + 10
    assert tent_ds < source_ds - 5
    assert delta_ds > tent_ds + 20
    assert delta_ds > source_ds + 10
    assert delta > tent - 1
    assert delta_ci > tent_ci + 10


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("pretrained.py", ["nowhere"], "expected images (.bmp, .jpeg, .jpg, .png, .webp) below nowhere"),
        ("pretrained.py", [".", "--batch", "0"], "--batch: expected at least 1, but got 0"),
        ("pretrained.py", [".", "--model", "resnet50"], "expected torchvision:NAME or timm:NAME"),
        ("pretrained.py", [".", "--weights", "a", "--random"], "not allowed with argument --weights"),
        ("video.py", ["nothing.mp4", "out.mp4"], "expected a video that OpenCV can read, but got nothing.mp4"),
        ("video.py", ["a.mp4", "out.gif"], "expected an output that ends in .mp4 or .avi, but got out.gif"),
        ("camera.py", ["--source", "nothing.mp4"], "but got 'nothing.mp4', which cannot be opened"),
        ("camera.py", ["--frames", "0"], "--frames: expected at least 1, but got 0"),
        ("camera.py", ["--method", "tnet"], "Did you mean 'tent'?"),
        ("onnx_export.py", ["x.onnx", "--corruption", "fogg"], "Did you mean 'fog'?"),
        ("onnx_export.py", ["x.onnx", "--images", "5"], "--images: expected 20 to 2000, but got 5"),
        ("edge.py", ["x.onnx", "--images", "5"], "--images: expected 20 to 2000, but got 5"),
        ("edge.py", ["x.onnx", "--method", "tent"], "without a loss, such as 'anchored+mirror+sticky', but got 'tent"),
    ],
)
def test_bad_input_gets_a_sentence(example, name, arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        example(name, *arguments)
    assert words in f"{ended.value.code} {capsys.readouterr().err}"
    assert ended.value.code not in (0, None)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["pretrained.py", "video.py", "camera.py", "onnx_export.py", "edge.py"])
def test_help_teaches(example, name, capsys):
    with pytest.raises(SystemExit) as ended:
        example(name, "--help")
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.count(f"python examples/{name}") >= 2
    assert any(default in " ".join(said.split()) for default in ("[what `adapt(model)` takes]", "[tent+delta]"))


def test_the_readme_lists_every_example():
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.suffix in (".py", ".ipynb"):
            assert f"[{path.name}]({path.name})" in listed
