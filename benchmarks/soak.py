"""Does it last? One adapter over very many small batches of a drifting stream, watched for leaks and decay.

A tiny network meets a synthetic stream made from a seed: classes in runs, their frequencies, the contrast, brightness
and noise drifting. Prints Markdown: memory and its slope, step times, the sum of DOT's z, how far the moving averages
went from the source's, skipped updates, and digests of all answers and of the final state.

Ends with 1, and a sentence for each reason, if memory grows, an answer is not finite, z is no distribution any more,
the averages run away, or (--twice) two runs in fresh processes are not the same bit for bit.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import json
import platform
import subprocess
import sys
from typing import Any

import torch

import delta_tta
from delta_tta.recipe import used_settings
from drift import Drift, trained
from endurance import Report, Tenth, complaints, differences, watch


def show(report: Report) -> None:
    """Print the tables."""
    print("| batches | memory, MB | step / first tenth | right, % | source, % | skipped |\n|---|---|---|---|---|---|")
    done = 0
    for part in report.tenths:
        done += part.batches
        ratio = part.step / report.tenths[0].step
        shares = f"{100 * part.right:.1f} | {100 * part.source:.1f}"
        print(f"| {done:,} | {part.memory:.1f} | {ratio:.3f} | {shares} | {part.skipped} |")
    first, middle, last = (report.tenths[i].step for i in (0, 5, 9))
    rows = {
        "memory slope after warm-up, MB per 10,000 batches": f"{report.slope:.4f}",
        "step time, middle / first tenth, last / first tenth": f"{middle / first:.3f}, {last / first:.3f}",
        "largest error of Σ z": f"{report.z_error:.1e}",
        "moving σ / source σ, smallest and largest": _range(report.std),
        "moving mean / source's, smallest and largest": _range(report.mean),
        "answers that are not finite": str(report.wrong_answers),
        "updates skipped": "; ".join(f"{n:,}: {why}" for why, n in report.skipped.items()) or "0",
        "sha256 of the answers": report.answers,
        "sha256 of the final state": report.state,
        "seconds": f"{report.seconds:.0f}",
    }
    print("\n| what | measured |\n|---|---|")
    for what, value in rows.items():
        print(f"| {what} | {value} |")
    print(flush=True)


def _range(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3g}, {pair[1]:.3g}" if pair[1] else "none"


def run(method: str, batches: int, size: int, seed: int, settings: dict[str, Any]) -> Report:
    """Make the network, the stream and the adapter from a seed, and watch."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    stream = Drift(seed)
    net = trained(stream)
    source = [stream.clean(32)[0] for _ in range(8)] if "eata" in method else None
    plain = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)} if method in ("cotta", "memo", "tta") else {}
    usual = {"update": "every", **plain}
    adapter = delta_tta.adapt(copy.deepcopy(net), method, source=source, **used_settings(method, {**usual, **settings}))
    return watch(adapter, net, lambda i: stream.batch(i, size), batches)


def _in_a_fresh_process(arguments: list[str]) -> Report:
    command = [sys.executable, __file__, *arguments, "--json"]
    values = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return Report(**{**values, "tenths": [Tenth(**part) for part in values["tenths"]]})


def _setting(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, such as update=slow, but got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="tent+delta", help="as for adapt() (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=100_000, help="at least 20 (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of network and stream (default: %(default)s)")
    parser.add_argument(
        "--set", nargs="+", type=_setting, default=[], metavar="NAME=VALUE", help="settings, such as update=slow"
    )
    parser.add_argument(
        "--max-slope", type=float, default=1.0, help="MB per 10,000 batches that memory may grow (default: %(default)s)"
    )
    parser.add_argument("--twice", action="store_true", help="run in two fresh processes and compare them bit for bit")
    parser.add_argument("--json", action="store_true", help="print numbers instead of tables, and judge nothing")
    options = parser.parse_args()
    if options.batches < 20:
        parser.error(f"expected at least 20 batches, but got {options.batches}")
    if options.json:
        report = run(options.method, options.batches, options.batch_size, options.seed, dict(options.set))
        print(json.dumps(dataclasses.asdict(report)))
        return
    about = f"torch {torch.__version__}, 1 thread, {platform.machine()}"
    print(f"{options.method} over {options.batches:,} batches of {options.batch_size}; {about}\n", flush=True)
    same = [argument for argument in sys.argv[1:] if argument != "--twice"]
    reports = [_in_a_fresh_process(same)]
    show(reports[0])
    found = list(complaints(reports[0], options.max_slope))
    if options.twice:
        reports.append(_in_a_fresh_process(same))
        found += [f"Second run: {wrong}" for wrong in complaints(reports[1], options.max_slope)]
        found += differences(*reports)
    print("\n".join(found) if found else "All within bounds" + (", twice the same bits." if options.twice else "."))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
