"""Adapt without torch: export a network once, then let onnxruntime and numpy adapt it to corrupted images.

python examples/edge.py model.onnx
python examples/edge.py model.onnx --corruption fog --shuffled

For devices that can run a network and have no torch. `python examples/edge.py model.onnx` plays both parts: it exports
the embedded network, and then does what the device does. The images come class by class, as in a video, or shuffled.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import delta_tta
from delta_tta import corruptions, data, edge, models
from delta_tta.normalization import Normalisation

BATCH = 64


def prepare(out: Path, method: str | None) -> Normalisation:
    """With torch, once: write the network; return how it wants its images scaled."""
    named = models.load("resnet20-cifar10")
    ((example, _),) = data.demo().batches([0, 1], 2)
    edge.export(named.model, named.normalisation(example), out, method)
    return named.normalisation


def main() -> None:
    """Read the command line, export, adapt, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the .onnx file to write")
    parser.add_argument("--corruption", default="motion_blur", help=f"{', '.join(corruptions.TYPES)} [%(default)s]")
    parser.add_argument("--method", help="without a loss, such as anchored+sticky [what `adapt(model)` takes]")
    parser.add_argument("--images", type=int, default=2000, help="of the embedded ones, 20 to 2000 [%(default)s]")
    parser.add_argument("--shuffled", action="store_true", help="mix the classes")
    args = parser.parse_args()
    if not 20 <= args.images <= 2000:
        parser.error(f"--images: expected 20 to 2000, but got {args.images}")
    drifted = data.Corrupted(data.Subset(data.demo(), args.images), args.corruption, 5)
    order = np.random.default_rng(0).permutation(len(drifted))
    if not args.shuffled:
        order = order[np.argsort(drifted.labels[order], kind="stable")]
    scale = prepare(args.out, args.method)

    model = edge.EdgeModel(args.out)  # from here on numpy and onnxruntime do the work
    adapted = plain = 0
    for images, labels in drifted.batches(list(order), BATCH):
        x = scale(images).numpy()
        plain += int((model.network.run(x).logits.argmax(1) == labels.numpy()).sum())
        adapted += int((model(x).argmax(1) == labels.numpy()).sum())
    model.save(args.out.with_suffix(".npz"))  # `model.load` goes on from there
    print(f"as it was\t{100 * plain / len(order):.1f} % of {len(order)} images")
    print(f"adapted\t{100 * adapted / len(order):.1f} %, share {model.share:g}, {model.refused} batches refused")


if __name__ == "__main__":
    try:
        main()
    except (delta_tta.DeltaError, OSError) as error:
        raise SystemExit(str(error)) from None
