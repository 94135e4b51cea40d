"""What adapting costs a service: its latency and its throughput, against the same service with the plain model.

python benchmarks/serving.py [--model resnet20-cifar10] [--methods tent+delta anchored] [--seconds 20]

All services run at once and are asked in turn, round after round. Latency: one client, batches of 8, learning in the
background, or after the answer (`--learn after`), with a pause between two requests in which the update can end.
Throughput: 8 clients, no pause, batches of 8, `learn: false`. Ends with 1 where a method in --bars misses a bar:
median and 95th percentile of the latency at most 1.10 times, throughput at least 0.95 times that of the plain model.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from measure import interleaved, ratio

LATENCY, THROUGHPUT = 1.10, 0.95
BATCH, CLIENTS = 8, 8
METHODS = ["anchored+sticky", "tent+delta, after", "anchored", "tent+delta", "anchored+mirror+sticky"]
HEADER = "Inference-Header-Content-Length"


class Service:
    """A service in a process, and a request for it."""

    def __init__(
        self,
        model: str,
        name: str,
        weights: str | None,
        shape: tuple[int, ...],
        batch: int = BATCH,
        more: Sequence[str] = (),
    ) -> None:
        method, _, learn = name.partition(", ")
        command = [sys.executable, "-c", "from delta_tta.cli import main; main()", "--quiet", "serve", model]
        command += ["--method", method, *(["--learn", learn] if learn else [])]
        command += ["--port", "0", "--no-grpc", *(["--weights", weights] if weights else []), *more]
        environment = {**os.environ, "DELTA_TTA_TOKEN": "a-token-for-benchmarks"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        found = re.search(r"Serving (\S+) at http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found is not None, f"the service of {method} did not start"
        self.path, self.port = f"/v2/models/{found[1]}/infer", int(found[2])
        self.shape, self.connection = (batch, *shape), self.connect()
        self.bodies = [self.body(number) for number in range(8)]
        self.silent = self.body(0, learn=False)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port)

    def body(self, seed: int, **parameters: bool | str) -> tuple[bytes, dict[str, str]]:
        raw = np.random.default_rng(seed).standard_normal(self.shape, dtype=np.float32).tobytes()
        one = {"name": "input", "datatype": "FP32", "shape": self.shape, "parameters": {"binary_data_size": len(raw)}}
        wanted = [{"name": "logits", "parameters": {"binary_data": True}}]
        text = json.dumps({"inputs": [one], "outputs": wanted, "parameters": parameters}).encode()
        return text + raw, {HEADER: str(len(text))}

    def ask(self, connection: http.client.HTTPConnection, request: tuple[bytes, dict[str, str]]) -> None:
        connection.request("POST", self.path, *request)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content

    def once(self) -> Callable[[], None]:
        """Return what asks for one more batch."""
        turn = iter(range(1_000_000))
        return lambda: self.ask(self.connection, self.bodies[next(turn) % len(self.bodies)])

    def load(self, requests: int) -> None:
        """Ask for many batches, from several clients at once."""

        def work() -> None:
            connection = self.connect()
            for _ in range(requests // CLIENTS):
                self.ask(connection, self.silent)
            connection.close()

        threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20-cifar10")
    parser.add_argument("--weights", help="of the model; random for the untrained network")
    parser.add_argument("--shape", type=int, nargs=3, default=(3, 32, 32))
    parser.add_argument("--methods", nargs="+", default=METHODS, help="with ', after' behind it: --learn after")
    parser.add_argument("--bars", nargs="*", default=METHODS[:3], help="methods that must keep to the bars")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of the two measurements")
    parser.add_argument("--warm", type=int, default=300, help="requests of each service before the first measurement")
    parser.add_argument("--pause", type=float, default=5.0, help="between requests, in latencies of the plain model")
    parser.add_argument("--requests", type=int, default=64, help="in a round of the second measurement")
    args = parser.parse_args()
    names = ["source", *(method for method in args.methods if method != "source")]
    services = {name: Service(args.model, name, args.weights, tuple(args.shape)) for name in names}
    try:
        plain = services["source"].once()
        pause = args.pause * min(timed(plain) for _ in range(9))
        variants = {name: service.once() for name, service in services.items()}
        for _ in range(args.warm):  # at the start of a stream `anchored` compares its candidates at every batch
            for run in variants.values():
                run()
        latency = {name: [] for name in names}
        end = time.monotonic() + args.seconds
        while time.monotonic() < end:
            for name, times in interleaved(variants, 0.0, lambda: time.sleep(pause)).items():
                latency[name] += times
        load = {name: lambda service=service: service.load(args.requests) for name, service in services.items()}
        rates = interleaved(load, args.seconds)
    finally:
        for service in services.values():
            service.end()
    print(f"{args.model}, batches of {BATCH}; latency: {len(latency['source'])} requests each\n")
    print("| method | median, ms | / plain | 95 %, ms | / plain | samples/s, not learning | / plain |")
    print("|---|---|---|---|---|---|---|")
    missed = []
    slow = {name: statistics.quantiles(times, n=20)[-1] for name, times in latency.items()}
    for name in names:
        slower, faster = ratio(latency, name, "source"), ratio(rates, "source", name)
        tail = slow[name] / slow["source"]
        rate = args.requests * BATCH / statistics.median(rates[name])
        middle, late = 1000 * statistics.median(latency[name]), 1000 * slow[name]
        print(f"| {name} | {middle:.1f} | {slower:.2f} | {late:.1f} | {tail:.2f} | {rate:,.0f} | {faster:.2f} |")
        if name in args.bars and (max(slower, tail) > LATENCY or faster < THROUGHPUT):
            missed.append(name)
    for name in missed:
        print(f"\n{name} misses a bar: latency at most {LATENCY:.2f}, throughput at least {THROUGHPUT:.2f}.")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
