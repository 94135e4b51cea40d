"""Adapt, bake what was learnt into a plain network, export that to ONNX, and check that onnxruntime answers alike.

python examples/onnx_export.py adapted.onnx
python examples/onnx_export.py adapted.onnx --corruption fog --images 1000

For devices that can run a network but not train it: adapt where you can, ship the result. The embedded network meets
the embedded images under a corruption; half of them are adapted on, the other half measure.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import delta_tta
from delta_tta import corruptions, data, models

BATCH = 50


def main() -> None:
    """Read the command line, adapt, export, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the .onnx file to write")
    parser.add_argument("--corruption", default="motion_blur", help=f"{', '.join(corruptions.TYPES)} [%(default)s]")
    parser.add_argument("--method", default="tent+delta", help="`delta-tta methods` lists them [%(default)s]")
    parser.add_argument("--images", type=int, default=2000, help="of the embedded ones, 20 to 2000 [%(default)s]")
    args = parser.parse_args()
    if not 20 <= args.images <= 2000:
        parser.error(f"--images: expected 20 to 2000, but got {args.images}")

    named = models.load("resnet20-cifar10")
    drifted = data.in_memory(data.Corrupted(data.Subset(data.demo(), args.images), args.corruption, 5))
    order = np.random.default_rng(0).permutation(len(drifted))
    first, second = np.array_split(order, 2)
    ((test, labels),) = drifted.batches(second, len(second))
    test = named.normalisation(test)

    model = delta_tta.adapt(named.model, args.method, "cifar10-c")
    before = model.predict(test)
    for images, _ in drifted.batches(first, BATCH):
        model(named.normalisation(images))
    plain = model.unload(keep=True)  # an ordinary network: nothing of delta-tta is left in it

    any_number = torch.export.Dim("batch")
    program = torch.onnx.export(plain, (test[:2],), dynamic_shapes=({0: any_number},), dynamo=True, verbose=False)
    program.save(args.out)
    with torch.no_grad():
        expected = plain(test)
    session = onnxruntime.InferenceSession(args.out, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: test.numpy()})
    difference = float(np.abs(found - expected.numpy()).max())

    for name, logits in (("as it was", before), ("adapted", expected), ("onnxruntime", torch.from_numpy(found))):
        print(f"{name}\t{100 * (logits.argmax(1) == labels).float().mean():.1f} % of {len(labels)} other images")
    print(f"largest difference of a logit between torch and onnxruntime: {difference:.1e}")
    if difference > 1e-3:
        raise SystemExit(f"{args.out} does not answer as the adapted network does.")


if __name__ == "__main__":
    try:
        main()
    except (delta_tta.DeltaError, OSError) as error:
        raise SystemExit(str(error)) from None
