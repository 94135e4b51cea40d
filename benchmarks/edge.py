"""What `EdgeModel` costs: onnxruntime with adaptation against onnxruntime with the plain network, side by side.

Ratios within rounds: the same machine, the same moment, one thread. The plain network has its batch norms folded into
its convolutions; `EdgeModel`'s statistics change at every batch. "Average" is that of a long stream: one batch in 64
compares the shares, and one in 64 is mirrored whole.
"""

from __future__ import annotations

import argparse
import copy
import platform
import statistics
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import nn

from delta_tta import edge, models
from delta_tta.evidence import LONGEST
from measure import interleaved, ratio
from networks import NETWORKS

METHODS = ("anchored+mirror+sticky", "anchored+sticky", "anchored")
BAR = 1.15


def plain(net: nn.Module, x: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    """Return a session of the network as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(net, (x[:4],), dynamic_shapes=shapes, dynamo=True, verbose=False).save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def steps(model: edge.EdgeModel, x: np.ndarray, slot: int, due: bool) -> Callable[[], np.ndarray]:
    """Return what runs one batch, of those that compare the shares or of the others, with a slot in use."""

    def run() -> np.ndarray:
        state = model._state
        shares = replace(state.shares, slot=slot, due=0 if due else state.shares.batches + 1)
        agreement = None if state.agreement is None else replace(state.agreement, left=0 if due else 1)
        model._state = replace(state, shares=shares, agreement=agreement)
        return model(x)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["resnet20-cifar10"], help="or names of networks.py")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each network and method, about")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{platform.machine()}, onnxruntime {onnxruntime.__version__}, B = {args.batch_size}, one thread\n")
    print("| network | method | plain, ms | torch eval | share 0 | share 0.5 | at a comparison | average, 0 | 0.5 |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks:
            named = name not in NETWORKS
            net = (models.load(name).model if named else NETWORKS[name][0]()).eval()
            pixels = 32 if named else NETWORKS[name][1]
            x = torch.randn(args.batch_size, 3, pixels, pixels)
            session = plain(copy.deepcopy(net), x, Path(folder) / "plain.onnx")
            given = {session.get_inputs()[0].name: x.numpy()}
            for method in METHODS:
                file = Path(folder) / "edge.onnx"
                edge.export(net, x, file, method)
                device = edge.EdgeModel(file, threads=1)
                for _ in range(3):
                    device(x.numpy())
                with torch.no_grad():
                    times = interleaved(
                        {
                            "plain": lambda s=session, g=given: s.run(None, g),
                            "torch": lambda n=net, x=x: n(x),
                            "source": steps(device, x.numpy(), 0, False),
                            "stream": steps(device, x.numpy(), 2, False),
                            "comparing": steps(device, x.numpy(), 2, True),
                        },
                        args.seconds,
                    )
                found = {key: ratio(times, key, "plain") for key in times}
                often, rare = LONGEST - 1, found["comparing"]
                means = [(often * found[key] + rare) / LONGEST for key in ("source", "stream")]
                cells = [f"{1e3 * statistics.median(times['plain']):.1f}"]
                cells += [f"{found[key]:.2f}" for key in ("torch", "source", "stream", "comparing")]
                cells += [f"{one:.2f}{'' if one <= BAR else ' (above ' + str(BAR) + ')'}" for one in means]
                print(f"| {name} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
