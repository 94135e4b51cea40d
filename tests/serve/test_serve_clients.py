"""The protocol as clients see it: Triton's over REST and gRPC, and plain JSON."""

import base64
import concurrent.futures
import io
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http
from PIL import Image
from servers import NAME, Server, infer_with
from tritonclient.utils import InferenceServerException

import delta_tta
from delta_tta import models
from delta_tta.normalization import Normalisation
from nets import CLASSES, batches, conv_net

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve")]
ROOT = Path(__file__).parents[2]
SCALE = Normalisation((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))


@pytest.fixture(scope="module")
def server():
    with Server("--method", "source") as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def client(request, server):
    """(the module, a client)."""
    kind = getattr(tritonclient, request.param)
    port = server.port if request.param == "http" else server.grpc_port
    made = kind.InferenceServerClient(f"{server.host}:{port}")
    yield kind, made
    made.close()


def plain(x):
    return conv_net().eval()(x).detach().numpy()


def test_a_client_finds_the_model(client):
    kind, made = client
    assert made.is_server_live()
    assert made.is_server_ready()
    assert made.is_model_ready(NAME)
    assert not made.is_model_ready("another") if kind is tritonclient.http else True
    as_json = {} if kind is tritonclient.http else {"as_json": True}
    about = made.get_model_metadata(NAME, **as_json)
    assert about["name"] == NAME
    assert [one["name"] for one in about["outputs"]] == ["logits", "probabilities", "classes"]
    assert [int(size) for size in about["inputs"][0]["shape"]] == [-1, 3, 8, 8]
    assert made.get_server_metadata(**as_json)["name"] == "delta-tta"


def test_the_answers_are_the_models(client):
    (x,) = batches(1)
    found = infer_with(*client, x)
    np.testing.assert_array_equal(found["logits"], plain(x))
    np.testing.assert_array_equal(found["classes"], plain(x).argmax(1))
    np.testing.assert_allclose(found["probabilities"].sum(1), 1, rtol=1e-6)
    assert found["logits"].dtype == np.float32
    assert found["classes"].dtype == np.int64


def test_half_precision_and_raw_images(client):
    x = batches(1)[0].half()
    np.testing.assert_array_equal(infer_with(*client, x, datatype="FP16")["logits"], plain(x.float()))
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    expected = plain(SCALE(torch.from_numpy(images)))
    np.testing.assert_array_equal(infer_with(*client, images, datatype="UINT8")["logits"], expected)


def encoded(size=(20, 12), kind="PNG"):
    pixels = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_encoded_images_are_scaled_cut_and_normalised_as_a_folder_of_images_is(client, kind, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / f"one.{kind.lower()}").write_bytes(encoded(kind=kind))
    x = SCALE(next(iter(delta_tta.data.folder(tmp_path, size=8).batches([0], 1)))[0])
    found = infer_with(*client, np.array([encoded(kind=kind)] * 2, dtype=np.object_), datatype="BYTES")
    np.testing.assert_array_equal(found["logits"], plain(torch.cat([x, x])))


def test_plain_json_and_base64(server):
    (x,) = batches(1, size=2)
    given = {"name": "input", "shape": [2, 3, 8, 8], "datatype": "FP32", "data": x.flatten().tolist()}
    status, found = server.json("POST", f"/v2/models/{NAME}/infer", {"id": "a", "inputs": [given]})
    assert (status, found["id"], found["model_name"]) == (200, "a", NAME)
    logits = next(one for one in found["outputs"] if one["name"] == "logits")
    assert logits["shape"] == [2, CLASSES]
    np.testing.assert_array_equal(np.float32(logits["data"]).reshape(2, -1), plain(x))
    given["data"] = x.tolist()  # nested
    assert (
        server.json("POST", f"/v2/models/{NAME}/versions/1/infer", {"inputs": [given]})[1]["outputs"]
        == found["outputs"]
    )
    image = {"name": "input", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(encoded()).decode()]}
    wanted = {"inputs": [image], "outputs": [{"name": "classes"}]}
    status, found = server.json("POST", f"/v2/models/{NAME}/infer", wanted)
    assert status == 200
    assert [one["name"] for one in found["outputs"]] == ["classes"]


def test_only_the_outputs_asked_for_come(client):
    kind, made = client
    x = batches(1)[0].numpy()
    given = kind.InferInput("input", list(x.shape), "FP32")
    given.set_data_from_numpy(x)
    found = made.infer(NAME, [given], outputs=[kind.InferRequestedOutput("classes")])
    assert found.as_numpy("logits") is None
    assert found.as_numpy("classes").shape == (12,)
    with pytest.raises(InferenceServerException, match="among logits, probabilities, classes"):
        made.infer(NAME, [given], outputs=[kind.InferRequestedOutput("boxes")])


def test_another_model_or_version_is_refused(client):
    with pytest.raises(InferenceServerException, match="Expected the model 'conv'") as error:
        infer_with(*client, batches(1)[0], name="another")
    assert error.value.status() in ("404", "StatusCode.NOT_FOUND")


def commands():
    """The commands of the page that begin with curl."""
    whole = (ROOT / "docs/serve.md").read_text().replace("\\\n", " ")
    return [line for line in whole.splitlines() if line.startswith("curl ")]


def test_every_curl_of_the_page_works(tmp_path):
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(tmp_path / "cat.jpg")
    assert len(commands()) >= 5
    states = tmp_path / "states"
    with Server("--checkpoints", states, model=["resnet20-cifar10"]) as running:
        for command in commands():
            line = command.replace("localhost:8080", f"{running.host}:{running.port}").replace("$TOKEN", running.token)
            done = subprocess.run(
                ["bash", "-c", line.replace("curl ", "curl -sS --fail-with-body ", 1)],
                capture_output=True, text=True, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert done.stdout
        assert running.status()["samples"] > 0


def test_the_clients_of_the_page_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(tmp_path / "cat.jpg")
    codes = re.findall(r"```python\n(.*?)```", (ROOT / "docs/serve.md").read_text(), re.S)
    assert codes
    with Server(model=["resnet20-cifar10"]) as running:
        for code in codes:
            names = {}
            code = code.replace("localhost:8080", f"{running.host}:{running.port}")
            exec(code.replace("localhost:8081", f"{running.host}:{running.grpc_port}"), names)
            assert names["logits"].shape == (1, 10)


def test_ten_thousand_requests_of_sixteen_clients(tmp_path):
    """None fails, all shapes are right, and every sample is counted."""
    each, clients = 625, 16

    def work(number, port):
        rng = np.random.default_rng(number)
        made = tritonclient.http.InferenceServerClient(f"127.0.0.1:{port}")
        samples = 0
        for turn in range(each):
            size = int(rng.integers(1, 9))
            x = rng.standard_normal((size, 3, 8, 8), dtype=np.float32)
            found = infer_with(tritonclient.http, made, x, stream=f"camera-{number % 5}", learn=turn % 3 > 0)
            assert found["logits"].shape == found["probabilities"].shape == (size, CLASSES)
            assert found["classes"].shape == (size,)
            assert np.isfinite(found["logits"]).all()
            samples += size
        made.close()
        return samples

    arguments = ["--streams", "separate", "--max-streams", "3", "--checkpoints", tmp_path, "--max-batch", 32]
    with Server(*arguments, "--max-wait", 1) as running:
        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            samples = sum(pool.map(work, range(clients), [running.port] * clients))
        now = running.status()
        while now["samples"] < samples:  # the last batches are counted behind their answers
            now = running.status()
        assert (now["requests"], now["errors"], now["samples"]) == (each * clients, 0, samples)
        assert len(now["streams"]) == 3
        assert sum(one["kind"] == "drop" for one in now["events"]) > 10
        assert len(now["history"]) == 600
        found = running.metrics()
        assert found["delta_tta_batch_size_sum"] == samples
        assert found["delta_tta_batch_size_count"] < each * clients  # several were one batch
        assert running.end() == 143
        assert not [line for line in running.log if "Traceback" in line]


def test_the_embedded_network_is_right_about_clean_images(server):
    images = delta_tta.data.demo()
    with Server("--method", "source", model=["resnet20-cifar10"]) as running:
        pixels, labels = next(iter(images.batches(range(200), 200)))
        found = running.infer(models.load("resnet20-cifar10").normalisation(pixels), "resnet20-cifar10")
    assert (found.argmax(1) == labels.numpy()).mean() > 0.85
    assert json.dumps(server.status())
