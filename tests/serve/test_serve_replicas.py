"""Several replicas on a Ray cluster of this machine; one of them is killed."""

import http.client
import json
import os
import signal
import struct
import time

import numpy as np
import pytest
from servers import SMALL, TESTS, TOKEN

import delta_tta
from nets import batches, conv_net

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'delta-tta[scale]'")
serve = pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'ray[serve]'")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]
PORT = 28123
STREAMS = [f"camera-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def replicas(tmp_path_factory):
    """The handles of two replicas behind HTTP."""
    from delta_tta.serve.ray import application
    from delta_tta.serve.security import Gate
    from delta_tta.serve.service import Options
    from delta_tta.serve.start import Model

    folder = tmp_path_factory.mktemp("states")
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    settings = {"update": "every", "lr": 0.01, "background": True}
    half = (0.5, 0.5, 0.5)
    chosen = Model(SMALL[0], mean=half, std=half, method="tent+delta+sticky", settings=settings, shape=(3, 8, 8))
    options = Options(streams="separate", folder=folder, every=2, most=4)
    serve.run(application(chosen, options, 2, Gate(TOKEN, everything=True)), name="default", route_prefix="/")
    yield [serve.get_deployment_handle(f"replica-{number}", "default") for number in range(2)]
    serve.shutdown()
    ray.shutdown()


def ask(method, path, body=None, headers=(), token=TOKEN):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}", **dict(headers)})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def infer(x, stream):
    """Return status and logits."""
    raw = x.numpy().tobytes()
    parameters = {"binary_data_size": len(raw)}
    one = {"name": "input", "datatype": "FP32", "shape": list(x.shape), "parameters": parameters}
    wanted = [{"name": "logits", "parameters": {"binary_data": True}}]
    text = json.dumps({"inputs": [one], "outputs": wanted, "parameters": {"stream": stream}}).encode()
    header = "Inference-Header-Content-Length"
    status, headers, content = ask("POST", "/v2/models/conv/infer", text + raw, {header: str(len(text))})
    if status != 200:
        return status, content
    return status, np.frombuffer(content[int(headers[header]) :], "<f4").reshape(len(x), -1)


def test_each_stream_stays_where_it_is():
    from delta_tta.serve.ray import replica_of

    names = [f"camera-{number}" for number in range(1000)]
    two, three = ([replica_of(name, count) for name in names] for count in (2, 3))
    assert 400 < sum(two) < 600
    moved = [(a, b) for a, b in zip(two, three, strict=True) if a != b]
    assert 250 < len(moved) < 420
    assert {b for _, b in moved} == {2}  # only to the new one


def test_the_arguments_of_serve_run_are_checked(tmp_path, monkeypatch):
    from delta_tta.errors import SettingError
    from delta_tta.serve.ray import build

    monkeypatch.setenv("DELTA_TTA_TOKEN", TOKEN)
    given = {"model": "resnet20-cifar10", "checkpoints": str(tmp_path), "replicas": "3"}
    assert build(given) is not None
    with pytest.raises(SettingError, match="Unknown argument 'replica'"):
        build({**given, "replica": "3"})
    with pytest.raises(SettingError, match="Expected the argument checkpoints="):
        build({"model": "resnet20-cifar10"})
    monkeypatch.delenv("DELTA_TTA_TOKEN")
    with pytest.raises(SettingError, match="Expected a token"):
        build(given)


def test_replicas_answer_as_one_and_one_that_dies_goes_on(replicas):
    references = {name: delta_tta.adapt(conv_net(), "tent+delta+sticky", update="every", lr=0.01) for name in STREAMS}
    streams = {name: batches(9, seed=number) for number, name in enumerate(STREAMS)}
    expected = {name: [references[name](x).numpy() for x in streams[name]] for name in STREAMS}
    for turn in range(4):
        for name in STREAMS:
            status, logits = infer(streams[name][turn], name)
            assert status == 200, logits
            np.testing.assert_array_equal(logits, expected[name][turn])
    status = json.loads(ask("GET", "/status")[2])
    assert status["requests"] == status["samples"] // 12 == 24
    assert {one["id"] for one in status["streams"]} == set(STREAMS)
    metrics = ask("GET", "/metrics")[2].decode()
    assert 'delta_tta_requests_total{replica="0"}' in metrics
    assert 'delta_tta_requests_total{replica="1"}' in metrics

    time.sleep(1)  # the fourth batches are saved
    pids = [replica.process.remote().result() for replica in replicas]
    os.kill(pids[0], signal.SIGKILL)
    failed = 0
    for turn in range(4, 9):
        for name in STREAMS:
            until = time.monotonic() + 60
            while True:
                status, logits = infer(streams[name][turn], name)
                if status == 200:
                    break
                failed += 1
                assert status in (500, 503), logits
                assert time.monotonic() < until
                time.sleep(0.2)
            np.testing.assert_array_equal(logits, expected[name][turn])
    after = [replica.process.remote().result() for replica in replicas]
    assert after[0] != pids[0]
    assert after[1] == pids[1]
    assert failed < 100


def test_the_routes_of_several_replicas(replicas):
    assert ask("GET", "/status", token="wrong")[0] == 401
    assert ask("GET", "/v2/health/ready")[0] == 200
    assert json.loads(ask("GET", "/v2/models/conv")[2])["outputs"][0]["shape"] == [-1, 5]
    assert infer(batches(1)[0][:, :2], "camera-0")[0] == 400
    status, _, said = ask("POST", "/v2/models/conv/infer", b"{}")
    assert (status, "list of objects" in said.decode()) == (400, True)
    assert ask("POST", "/v2/models/conv/infer", struct.pack("<I", 1))[0] == 400
    done = json.loads(ask("POST", "/control/snapshot", b'{"stream": "camera-1"}')[2])
    assert done == {"done": "Snapshot of camera-1 taken, on disk"}
    assert json.loads(ask("POST", "/control/freeze")[2])["done"].startswith("The service learns no more")
    assert json.loads(ask("GET", "/status")[2])["learning"] is False
    assert ask("POST", "/control/learn")[0] == 200
    assert ask("POST", "/control/explode")[0] == 404
