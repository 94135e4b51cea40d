"""How fast the corruptions are: ours against imagecorruptions-imaug, one core each, side by side in one run.

python benchmarks/corruptions.py [--images 8] [--rounds 7]

Needs the extra `dev`. At 224×224 with the constants of ImageNet-C, severity 3: median CPU time of an image over several
rounds in which both take turns, after a warm-up (theirs compiles); the bar is on the sum over the 15 test types. Beside
it our throughput at 32×32 with the constants of CIFAR-C. Prints Markdown; exits with 1 if the bar is missed.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"  # before anything that reads it is imported

import cv2  # noqa: E402 - see above
import imagecorruptions  # noqa: E402
import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from delta_tta.corruptions import TYPES, VALIDATION, corrupt  # noqa: E402

SEVERITY = 3
BAR = 3.0
"""How many times as fast as theirs, over the 15 types together."""

Images = npt.NDArray[np.uint8]


def pictures(count: int, side: int) -> Images:
    """Smooth colours with some grain: neither flat nor pure noise, which would flatter or punish JPEG and Poisson."""
    draw = np.random.default_rng(0)
    coarse = draw.uniform(20, 235, (count, 9, 9, 3)).astype(np.float32)
    smooth = np.stack([cv2.resize(image, (side, side), interpolation=cv2.INTER_CUBIC) for image in coarse])
    return np.clip(smooth + draw.normal(0, 12, smooth.shape), 0, 255).astype(np.uint8)


def milliseconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return 1000 * (time.process_time() - start)


def compared(name: str, images: Images, rounds: int) -> tuple[float, float]:
    """Median CPU time of an image in milliseconds: ours, theirs."""

    def ours() -> None:
        corrupt(images, name, SEVERITY, "imagenet")

    def theirs() -> None:
        for image in images:
            imagecorruptions.corrupt(image, SEVERITY, name)

    ours(), theirs()
    pairs = [(milliseconds(ours), milliseconds(theirs)) for _ in range(rounds)]
    mine, other = (statistics.median(times) / len(images) for times in zip(*pairs, strict=True))
    return mine, other


def small(name: str, rounds: int) -> float:
    """Median CPU time of a 32×32 image in milliseconds, with the constants of CIFAR-C."""
    images = pictures(256, 32)
    corrupt(images, name, SEVERITY, "cifar")
    times = [milliseconds(lambda: corrupt(images, name, SEVERITY, "cifar")) for _ in range(rounds)]
    return statistics.median(times) / len(images)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8, help="at once (default: 8)")
    parser.add_argument("--rounds", type=int, default=7, help="of which the median counts (default: 7)")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    images = pictures(options.images, 224)

    print(f"numpy {np.__version__}, OpenCV {cv2.__version__}, one core, {platform.machine()}\n")
    print(f"| type, severity {SEVERITY} | ours, ms | theirs, ms | theirs / ours | ours at 32×32, images/s |")
    print("|---|---|---|---|---|")
    total = np.zeros(2)
    for name in (*TYPES, *VALIDATION):
        mine, other = compared(name, images, options.rounds)
        fast = 1000 / small(name, options.rounds)
        print(f"| {name} | {mine:.2f} | {other:.2f} | {other / mine:.1f} | {fast:,.0f} |", flush=True)
        total += (mine, other) if name in TYPES else 0
    ratio = total[1] / total[0]
    verdict = "met" if ratio >= BAR else "missed"
    print(f"| the 15 test types | {total[0]:.2f} | {total[1]:.2f} | {ratio:.2f} | |")
    print(f"\nTotal over the 15 types: {ratio:.2f} times as fast, bar at least {BAR:g}: {verdict}.")
    return 0 if ratio >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
