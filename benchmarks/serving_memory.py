"""How much memory a service takes over many requests.

    python benchmarks/serving_memory.py [--requests 100000] [--method anchored+mirror+sticky]

Eight clients send single images of 64 streams to one service with a tiny network. Prints the
memory of the service after each tenth of the requests (Linux). Ends with 1 where it grew by more than 1 % from the
second tenth to the last.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from serving import CLIENTS, Service

GROWTH = 1.01


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def send(service: Service, requests: int) -> None:
    """Send so many requests from all clients together."""
    failed: list[BaseException] = []

    def work(client: int) -> None:
        connection = service.connect()
        bodies = [service.body(turn, stream=f"camera-{client}-{turn}") for turn in range(8)]
        try:
            for turn in range(requests // CLIENTS):
                service.ask(connection, bodies[turn % len(bodies)])
        except BaseException as error:
            failed.append(error)
        connection.close()

    threads = [threading.Thread(target=work, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--method", default="anchored+mirror+sticky")
    parser.add_argument("--streams", choices=("shared", "separate"), default="shared")
    args = parser.parse_args()
    model = f"{Path(__file__).parent / 'networks.py'}:tiny"
    scale = ["--mean", *["0.5"] * 3, "--std", *["0.25"] * 3]
    more = ["--streams", args.streams, "--shape", "3,8,8", *scale]
    service = Service(model, args.method, None, (3, 8, 8), batch=1, more=more)
    found: list[float] = []
    start = time.monotonic()
    print("| requests | memory, MB | seconds |\n|---|---|---|")
    try:
        for tenth in range(10):
            send(service, args.requests // 10)
            found.append(resident(service.process.pid))
            asked = (tenth + 1) * (args.requests // 10)
            print(f"| {asked:,} | {found[-1]:.1f} | {time.monotonic() - start:.0f} |", flush=True)
    finally:
        service.end()
    if found[-1] > GROWTH * found[1]:
        print(f"\nThe memory grew by {100 * (found[-1] / found[1] - 1):.1f} % from the second tenth to the last.")
        sys.exit(1)


if __name__ == "__main__":
    main()
