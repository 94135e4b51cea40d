"""The warning where each batch's own statistics mislead."""

import logging

import pytest
import torch

from all_methods import fitting
from nets import bright, channel_net


def warnings_of(caplog, method, length, **settings):
    """What is logged over a stream in which each class stays for so many samples."""
    model, g = fitting(channel_net(), method, **settings), torch.Generator().manual_seed(0)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "delta_tta"):
        for seed in range(20):
            labels = torch.randint(10, (60 // length,), generator=g).repeat_interleave(length)
            model(bright(labels, seed=seed))
    return caplog.messages


@pytest.mark.parametrize(
    ("method", "instead"),
    [
        ("bn", "anchored"),
        ("tent", "tent+anchored"),
        ("tent+dot", "tent+anchored+dot"),
        ("bn+sticky", "anchored+sticky"),
        ("tent+lame", "tent+anchored+lame"),
    ],
)
@pytest.mark.parametrize("guard", ["on", "off"])
def test_it_is_said_once_and_with_what_to_write(caplog, method, instead, guard):
    (line,) = warnings_of(caplog, method, 12, guard=guard)
    assert f"and {method!r} normalises each batch by itself" in line
    assert line.endswith(f"write {instead!r}")


@pytest.mark.parametrize(
    ("method", "length"), [("bn", 1), ("tent", 1), ("source", 12), ("tema", 12), ("tent+delta", 12), ("anchored", 12)]
)
def test_nothing_is_said_where_nothing_is_wrong(caplog, method, length):
    assert warnings_of(caplog, method, length) == []
