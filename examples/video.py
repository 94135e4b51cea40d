"""Label a video frame by frame while the network adapts to it; writes a copy with the labels on the picture.

python examples/video.py clip.mp4 labelled.mp4
python examples/video.py clip.mp4 labelled.mp4 --model torchvision:resnet50 --preset ytbb-sub --classes names.txt

A video is the natural dependent stream: one thing fills the view for seconds. `adapt(model)` finds that out and uses
it; try `--method tent` to see a method that is misled by it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import torch

import delta_tta
from delta_tta import data, models

CODECS = {".mp4": "mp4v", ".avi": "MJPG"}


def frames(path: Path) -> Iterator[np.ndarray]:
    """Yield the frames of a video as OpenCV reads them: uint8 (H, W, 3), blue first."""
    video = cv2.VideoCapture(str(path))
    while True:
        there, frame = video.read()
        if not there:
            return
        yield frame


def square(frame: np.ndarray, size: int) -> torch.Tensor:
    """Return the middle of the frame as the network wants it: uint8 (3, size, size), red first."""
    height, width, _ = frame.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    middle = cv2.resize(frame[top : top + side, left : left + side], (size, size), interpolation=cv2.INTER_AREA)
    return torch.from_numpy(np.ascontiguousarray(middle[:, :, ::-1].transpose(2, 0, 1)))


def overlay(frame: np.ndarray, label: str, confidence: float) -> np.ndarray:
    """Return the frame with its label and a bar as long as the network is sure."""
    picture = frame.copy()
    height, width, _ = picture.shape
    band = max(height // 8, 12)
    picture[:band] //= 3
    picture[band - 2 : band, : round(confidence * width)] = (80, 220, 80)
    cv2.putText(
        picture, label, (4, band - 5), cv2.FONT_HERSHEY_SIMPLEX, band / 36, (255, 255, 255), 1, lineType=cv2.LINE_AA
    )
    return picture


def main() -> None:
    """Read the command line, label the video."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("video", type=Path, help="any video that OpenCV can read")
    parser.add_argument("out", type=Path, help=f"the labelled copy ({' or '.join(CODECS)})")
    parser.add_argument(
        "--model", default="resnet20-cifar10", help="see `delta_tta.models.load` [%(default)s, embedded]"
    )
    parser.add_argument("--classes", type=Path, help="a text file, one name a line, in the order of the outputs")
    parser.add_argument("--method", help="`delta-tta methods` lists the words [what `adapt(model)` takes]")
    parser.add_argument(
        "--preset", default="cifar10-c", help="the paper's for video on ImageNet: ytbb-sub [%(default)s]"
    )
    parser.add_argument(
        "--batch", type=int, default=16, help="frames at a time; below 9 are learnt from 64 together [16]"
    )
    args = parser.parse_args()
    if args.batch < 1:
        parser.error(f"--batch: expected at least 1, but got {args.batch}")
    if args.out.suffix.lower() not in CODECS:
        parser.error(f"expected an output that ends in {' or '.join(CODECS)}, but got {args.out}")
    video = cv2.VideoCapture(str(args.video))
    size = int(video.get(cv2.CAP_PROP_FRAME_WIDTH)), int(video.get(cv2.CAP_PROP_FRAME_HEIGHT))
    rate = video.get(cv2.CAP_PROP_FPS) or 25.0
    if not video.isOpened():
        parser.error(f"expected a video that OpenCV can read, but got {args.video}")

    named = models.load(args.model)
    names = args.classes.read_text().splitlines() if args.classes else ()
    if args.model == "resnet20-cifar10" and not names:
        names = data.demo().classes
    model = delta_tta.adapt(named.model, args.method, args.preset)
    writer = cv2.VideoWriter(str(args.out), cv2.VideoWriter_fourcc(*CODECS[args.out.suffix.lower()]), rate, size)
    if not writer.isOpened():
        parser.error(f"cannot write {args.out}; does its folder exist?")

    count: Counter[str] = Counter()
    waiting: list[np.ndarray] = []

    def answer() -> None:
        images = named.normalisation(torch.stack([square(frame, named.size) for frame in waiting]))
        confidence, label = model(images).softmax(1).max(1)
        for frame, c, k in zip(waiting, confidence.tolist(), label.tolist(), strict=True):
            name = names[k] if k < len(names) else f"class {k}"
            print(f"{count.total()}\t{count.total() / rate:.2f} s\t{name}\t{c:.3f}")
            writer.write(overlay(frame, name, c))
            count[name] += 1
        waiting.clear()

    for frame in frames(args.video):
        waiting.append(frame)
        if len(waiting) == args.batch:
            answer()
    if waiting:
        answer()
    writer.release()
    print(f"# {count.total()} frames in {args.out}: " + ", ".join(f"{name} {n}" for name, n in count.most_common(5)))


if __name__ == "__main__":
    try:
        main()
    except (delta_tta.DeltaError, OSError) as error:
        raise SystemExit(str(error)) from None
