"""A server as a process of its own, and what tests ask it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import torch
import tritonclient.grpc
import tritonclient.http

TESTS = Path(__file__).parents[1]
TOKEN = "a-token-for-the-tests-0123"
NAME = "conv"
SMALL = [f"{TESTS / 'serve' / 'factory.py'}:conv", "--shape", "3,8,8", "--mean", "0.5", "0.5", "0.5"]
SMALL += ["--std", "0.25", "0.25", "0.25"]


class Server:
    """`delta-tta serve`, from when it is ready to the end of the block."""

    def __init__(self, *arguments, model=(*SMALL,), token=TOKEN, tls=False):
        command = [sys.executable, "-c", "from delta_tta.cli import main; main()", "serve", *model]
        command += ["--port", "0", "--grpc-port", "0", *map(str, arguments)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
        env |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        env.pop("DELTA_TTA_TOKEN", None)
        if token is not None:
            env["DELTA_TTA_TOKEN"] = token
        self.token, self.tls = token, tls
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        line = self.process.stdout.readline()
        found = re.search(r"at (https?)://(\S+?):(\d+)(?:, gRPC at \S+?:(\d+))?$", line.strip())
        if found is None:
            self.process.kill()
            raise RuntimeError(f"{line} {self.process.communicate()}")
        self.host, self.port = found[2], int(found[3])
        self.grpc_port = int(found[4]) if found[4] else None
        self.log = []
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def end(self, number=signal.SIGTERM):
        """Tell it to end and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def ask(self, method, path, body=None, headers=(), token=None):
        """Return (status, headers, body) of a request."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        headers = dict(headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, headers=(), token=None):
        status, _, content = self.ask(method, path, None if body is None else json.dumps(body), headers, token)
        return status, json.loads(content)

    def status(self):
        return self.json("GET", "/status", token=self.token)[1]

    def metrics(self):
        """Return the metrics by name and labels."""
        lines = self.ask("GET", "/metrics", token=self.token)[2].decode().splitlines()
        return {name: float(value) for name, _, value in (x.rpartition(" ") for x in lines if not x.startswith("#"))}

    def control(self, what, stream=None):
        return self.json("POST", f"/control/{what}", {"stream": stream} if stream else None, token=self.token)

    def infer(self, x, name=NAME, **parameters):
        """Return the logits of a batch, over HTTP in binary, as numpy."""
        client = tritonclient.http.InferenceServerClient(f"{self.host}:{self.port}")
        try:
            return infer_with(tritonclient.http, client, x, name, **parameters)["logits"]
        finally:
            client.close()


def infer_with(kind, client, x, name=NAME, datatype="FP32", **parameters):
    """Return all outputs of one request with a client of tritonclient."""
    values = np.asarray(x)
    given = kind.InferInput("input", list(values.shape), datatype)
    given.set_data_from_numpy(values)
    found = client.infer(name, [given], parameters=parameters or None)
    return {output: found.as_numpy(output) for output in ("logits", "probabilities", "classes")}


def state_of(folder):
    """Return the newest checkpoint's number and checksum."""
    newest = sorted(folder.glob("step-*.pt"))[-1]
    return int(newest.stem[5:]), torch.load(newest, weights_only=True)["checksum"]
