"""Adapt an image classifier of HuggingFace transformers over a data set of HuggingFace datasets.

python examples/huggingface.py --data imagefolder:photos/ --split train   # downloads microsoft/resnet-50
python examples/huggingface.py --data saved-set/ --model my-resnet/       # from save_to_disk() and save_pretrained()
python examples/huggingface.py --random                                   # no downloads; the answers mean nothing

Two things differ from other libraries: the model returns an object, so a wrapper of three lines hands out its logits;
and the image processor that comes with the model makes its inputs.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from PIL import Image
from torch import Tensor, nn
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ConvNextImageProcessor,
    ResNetConfig,
    ResNetForImageClassification,
)

import delta_tta
from delta_tta import data


class Logits(nn.Module):
    """What `adapt` wants: images in, logits out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits alone."""
        return self.model(pixel_values=images).logits


def random_model() -> tuple[nn.Module, Any]:
    """Return a tiny untrained ResNet and its processor."""
    torch.manual_seed(0)
    labels = dict(enumerate(data.demo().classes))
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=labels)
    return ResNetForImageClassification(config), ConvNextImageProcessor(size={"shortest_edge": 32})


def images(name: str, split: str) -> Dataset:
    """Return a data set by its name: "demo", "imagefolder:FOLDER", a saved folder, or one of the hub's."""
    if name == "demo":
        few = data.Subset(data.demo(), 100)
        pictures = [Image.fromarray(image) for image in few.take(range(len(few)))]
        return Dataset.from_dict({"image": pictures, "label": few.labels.tolist()})
    if name.startswith("imagefolder:"):
        return load_dataset("imagefolder", data_dir=name.removeprefix("imagefolder:"), split=split)
    found = load_from_disk(name) if Path(name).is_dir() else load_dataset(name, split=split)
    return found[split] if isinstance(found, DatasetDict) else found


def main() -> None:
    """Read the command line, adapt, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a folder of save_to_disk(), imagefolder:FOLDER, demo, or a name of the hub")
    parser.add_argument("--split", default="test", help="which part, where the data set has parts [%(default)s]")
    parser.add_argument("--model", default="microsoft/resnet-50", help="a name of the hub, or a folder [%(default)s]")
    parser.add_argument("--method", default="tent+delta", help="`delta-tta methods` lists them [%(default)s]")
    parser.add_argument("--batch", type=int, default=32, help="images at a time [%(default)s]")
    parser.add_argument(
        "--random", action="store_true", help="a tiny untrained ResNet; without --data on the demo images"
    )
    args = parser.parse_args()
    if args.batch < 1:
        parser.error(f"--batch: expected at least 1, but got {args.batch}")
    if args.data is None and not args.random:
        parser.error("expected --data (demo takes the embedded images), or --random for a look without downloads")
    found = images(args.data or "demo", args.split)
    if "image" not in found.column_names:
        parser.error(f"expected a column 'image' in {args.data}, but it has {', '.join(found.column_names)}")

    if args.random:
        print("Random weights: what follows shows how it runs; the labels mean nothing.")
        network, processor = random_model()
    else:
        network = AutoModelForImageClassification.from_pretrained(args.model)
        processor = AutoImageProcessor.from_pretrained(args.model)
    names = network.config.id2label
    model = delta_tta.adapt(Logits(network), args.method, "imagenet-c")
    for batch in found.iter(batch_size=args.batch):
        pictures = [picture.convert("RGB") for picture in batch["image"]]
        inputs = processor(images=pictures, return_tensors="pt")["pixel_values"]
        confidence, label = model(inputs).softmax(1).max(1)
        start = model.signals.samples - len(pictures)
        for number, (c, k) in enumerate(zip(confidence.tolist(), label.tolist(), strict=True), start):
            print(f"{number}\t{names[k]}\t{c:.3f}")
        print(f"# batch {model.signals.step}: loss {model.signals.loss}, skipped: {model.signals.skipped or 'no'}")


if __name__ == "__main__":
    try:
        main()
    except (delta_tta.DeltaError, OSError) as error:  # OSError: what the hub cannot give
        raise SystemExit(str(error)) from None
