"""Adapt inside a predict loop of PyTorch Lightning.

python examples/lightning_predict.py
python examples/lightning_predict.py --method ent-w+delta --corruption fog --scenario "DS+CI (rho=0.5, pi=0.05)"

`Trainer.predict` runs under `torch.inference_mode()`, where ordinary code cannot learn. An adapter leaves that mode by
itself, so `inference_mode=False` is not needed: adapt the model before the loop, call it in `predict_step`. One device:
for several, which must learn together, see docs/scaling.md.

(The file is not called lightning.py: beside it, `import lightning` would find this file.)
"""

from __future__ import annotations

import argparse

import lightning
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import delta_tta
from delta_tta import corruptions, data, models, streams
from delta_tta.metrics import class_mean_accuracy


class Adapting(lightning.LightningModule):
    """A classifier that adapts while Lightning predicts with it."""

    def __init__(self, named: models.NamedModel, method: str, preset: str) -> None:
        super().__init__()
        self.model = delta_tta.adapt(named.model, method, preset)
        self.normalise = named.normalisation

    def predict_step(self, batch: tuple[Tensor, Tensor], _: int) -> tuple[Tensor, Tensor]:
        """Return the predicted and the true classes of a batch, and learn from its images."""
        images, labels = batch
        return self.model(self.normalise(images)).argmax(1), labels


def main() -> None:
    """Read the command line, predict without and with adaptation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="tent+delta", help="`delta-tta methods` lists them [%(default)s]")
    parser.add_argument("--corruption", default="motion_blur", help=f"{', '.join(corruptions.TYPES)} [%(default)s]")
    parser.add_argument(
        "--scenario", default="DS+CB (rho=0.1)", help="the order of arrival, see docs/data.md [%(default)s]"
    )
    parser.add_argument("--images", type=int, default=2000, help="of the embedded ones, 10 to 2000 [%(default)s]")
    parser.add_argument("--batch", type=int, default=64, help="images at a time [%(default)s]")
    args = parser.parse_args()
    if args.batch < 1:
        parser.error(f"--batch: expected at least 1, but got {args.batch}")

    drifted = data.in_memory(data.Corrupted(data.Subset(data.demo(), args.images), args.corruption, 5))
    spec = streams.StreamSpec.parse(args.scenario)
    order = streams.stream(drifted.labels, spec.scenario, rho=spec.rho, pi=spec.pi, seed=spec.seed, pieces=spec.pieces)
    loader = DataLoader(drifted, batch_size=args.batch, sampler=order)
    trainer = lightning.Trainer(
        devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    for method in ("source", args.method):
        adapting = Adapting(models.load("resnet20-cifar10"), method, "cifar10-c")
        predicted, labels = (torch.cat(parts) for parts in zip(*trainer.predict(adapting, loader), strict=True))
        accuracy = 100 * class_mean_accuracy(predicted, labels)
        print(f"{method}\t{accuracy:.2f} % of {len(labels)} images, {adapting.model.signals.step} batches")


if __name__ == "__main__":
    try:
        main()
    except delta_tta.DeltaError as error:
        raise SystemExit(str(error)) from None
