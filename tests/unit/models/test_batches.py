"""The batches of a training: every image once an epoch, all from the seed, and an epoch that can be continued."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from delta_tta import data
from delta_tta.models.batches import batches, seed_of


@pytest.fixture
def images():
    """23 images of one colour each: whatever is cut out of it, an image is known by its brightness."""
    pixels = np.full((23, 8, 8, 3), 1, np.uint8) * np.arange(10, 240, 10, dtype=np.uint8)[:, None, None, None]
    return data.ArraySet("colours", pixels, np.arange(23) % 4, "abcd")


def epoch(images, seed=0, number=0, first=0, steps=5):
    with ThreadPoolExecutor(2) as pool:
        return list(batches(images, seed, number, first, steps, pool))


def places(found):
    """Which images they are."""
    return [[int(one.max()) // 10 - 1 for one in views] for views, _ in found]


def test_every_image_comes_once_in_batches_of_nearly_one_size(images):
    found = epoch(images)
    assert [len(labels) for _, labels in found] == [5, 5, 5, 4, 4]
    assert sorted(itertools.chain(*places(found))) == list(range(23))
    for (views, labels), own in zip(found, places(found), strict=True):
        assert views.shape[1:] == (3, 8, 8)
        assert views.dtype == torch.uint8
        assert labels.tolist() == images.labels[own].tolist()


def test_they_come_from_the_seed_and_the_epoch(images):
    def equal(one, other):
        return all(torch.equal(a, b) for a, b in zip([v for v, _ in one], [v for v, _ in other], strict=True))

    assert equal(epoch(images), epoch(images))
    assert places(epoch(images)) != places(epoch(images, seed=1)) != places(epoch(images, seed=0, number=1))
    state = torch.get_rng_state()
    epoch(images)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("first", [0, 2, 4])
def test_an_epoch_continues_where_it_was(images, first):
    for (views, labels), (same, others) in zip(epoch(images)[first:], epoch(images, first=first), strict=True):
        assert torch.equal(views, same)
        assert torch.equal(labels, others)


def test_an_image_is_cut_otherwise_in_each_epoch_and_with_each_seed():
    one = data.ArraySet("one", np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3), [0], "a")
    for several in ([(0, number) for number in range(8)], [(seed, 0) for seed in range(8)]):
        views = {epoch(one, seed, number, steps=1)[0][0].numpy().tobytes() for seed, number in several}
        assert len(views) > 4


def test_no_two_places_share_a_seed():
    found = {seed_of(seed, epoch_, step) for seed in range(5) for epoch_ in range(5) for step in range(5)}
    found |= {seed_of(seed, epoch_) for seed in range(5) for epoch_ in range(5)}
    found |= {seed_of(12, 3), seed_of(1, 23), seed_of("1", 23)}
    assert len(found) == 125 + 25 + 3
    assert all(0 <= one < 2**63 for one in found)
    assert seed_of(0, "network") == seed_of(0, "network")
