"""Batches as nobody should send them: a right answer or a clear refusal, and nothing of them stays behind.

What is promised is in campaign.py. `make campaign` tries tens of thousands and prints how they ended.
"""

import contextlib
import functools
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import delta_tta
from all_methods import assert_same_state
from campaign import ADAPTERS, ALONE, NETS, Case, dtype_of
from nets import batches

TYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn),
]
AROUND = {
    "nothing": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast bfloat16": functools.partial(torch.autocast, "cpu", torch.bfloat16),
    "autocast float16": functools.partial(torch.autocast, "cpu", torch.float16),
}
HALVES = ("bfloat16", "float16")

cases = functools.partial(
    st.builds,
    Case,
    who=st.sampled_from(sorted(ADAPTERS)),
    warm=st.integers(0, 2),
    call=st.sampled_from(["adapter"] * 3 + ["predict"]),
)
some = settings(max_examples=settings().max_examples // 4)
seeds = st.integers(0, 9)
sizes = st.sampled_from([1, 2, 3, 5])


def images(size=4, seed=0, shape=(3, 8, 8), dtype=torch.float32):
    return batches(1, size=size, shape=shape, seed=seed)[0].to(dtype)


odd = st.sampled_from([0, 1, 2, 3, 5, 7, 8])
shapes = st.one_of(
    st.tuples(st.integers(1, 9), st.just(3), odd, odd),  # any batch and image size
    st.tuples(sizes, odd, st.just(8), st.just(8)),  # any channels
    st.lists(odd.filter(lambda n: n < 8), max_size=6).map(tuple),  # anything
)


@some
@given(cases(), shapes, seeds)
def test_shapes(case, shape, seed):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    ended = case.try_it("shapes", x, x.clone())
    fits = len(shape) == 4 and shape[1] == 3 and x.numel() > 0
    keeps = case.call == "adapter" and ADAPTERS[case.who][1].get("update", "every") != "every"
    if keeps and case.warm and shape[1:] != (3, 8, 8):  # unlike the samples kept for the next update
        fits = False
    assert (ended in ("answered", "skipped")) == fits


@some
@given(cases(net=st.sampled_from(sorted(NETS))), st.sampled_from(TYPES), seeds)
def test_types_of_numbers(case, dtype, seed):
    x = (images(seed=seed) * 20).to(dtype)
    fits = dtype == dtype_of(case.net) or (case.net == "casting" and not dtype.is_complex)
    ended = case.try_it("types of numbers", x, x.to(dtype_of(case.net)) if fits else None)
    if not fits:
        assert ended == "refused"


def strided(x):
    return torch.empty_strided(x.shape, (1, 7, 23 * 8, 701 * 2), dtype=x.dtype).copy_(x)


LAYOUTS = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "every second row": lambda x: x.repeat_interleave(2, dim=2)[:, :, ::2],
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "batch last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "with gaps": lambda x: nn.functional.pad(x, (1, 2, 3, 4))[:, :, 3:-4, 1:-2],
    "offset": lambda x: torch.cat([x, x])[len(x) :],
    "negative view": lambda x: torch._neg_view(-x),
    "imaginary part": lambda x: torch.complex(x, -x).conj().imag,
    "flipped": lambda x: x.flip(0).flip(0),
    "numpy memory": lambda x: torch.from_numpy(x.numpy().copy()),
}


@some
@given(cases(), st.sampled_from(sorted(LAYOUTS)), sizes, seeds)
def test_layouts_of_memory(case, layout, size, seed):
    x = images(size, seed)
    assert torch.equal(LAYOUTS[layout](x), x)
    case.try_it("layouts of memory", LAYOUTS[layout](x), x)


@some
@given(cases(), st.sampled_from(["samples", "channels", "pixels"]), sizes, seeds)
def test_expanded_views(case, along, size, seed):
    x = images(size, seed)
    one = {"samples": x[:1], "channels": x[:, :1], "pixels": x[:, :, :1, :1]}[along]
    view = one.expand_as(x)
    assert case.try_it("layouts of memory", view, view.contiguous()) in ("answered", "skipped")


EXOTIC = {
    "sparse": lambda x: x.relu().to_sparse(),
    "sparse rows": lambda x: x.flatten(1).to_sparse_csr(),
    "mkldnn": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[0, :, :4]]),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
    "meta": lambda x: x.to("meta"),
}


@some
@given(cases(net=st.sampled_from(["float32", "casting"])), st.sampled_from(sorted(EXOTIC)), seeds)
def test_tensors_that_are_no_images(case, kind, seed):
    with warnings.catch_warnings(action="ignore"):  # torch says that some of them are young or old
        x = EXOTIC[kind](images(seed=seed))
        assert case.try_it("exotic tensors and devices", x, None) == "refused"


@some
@given(cases(), st.sampled_from([None, "images", 3, 2.5, "list", "tuple", "numpy", "dict", "loader item"]))
def test_what_is_no_tensor(case, what):
    x = images()
    made = {"list": x.tolist(), "tuple": (x,), "numpy": x.numpy(), "dict": {"x": x}, "loader item": [x, torch.zeros(4)]}
    assert case.try_it("no tensors", made.get(what, what), None) == "refused"
    assert case.try_it("no tensors", np.zeros(()), None) == "refused"


VALUES = {
    "constant": lambda x, most: torch.full_like(x, 0.5),
    "zero": lambda x, most: torch.zeros_like(x),
    "negative zero": lambda x, most: -torch.zeros_like(x),
    "huge": lambda x, most: x * (1e30 if most > 1e30 else most / 100),
    "largest": lambda x, most: torch.full_like(x, most),
    "largest of both signs": lambda x, most: most * x.sign(),
    "one huge sample": lambda x, most: torch.cat([x[1:], x[:1].sign() * most / 4]),
    "one huge value": lambda x, most: x.flatten().scatter(0, torch.tensor(5), most).view_as(x),
    "large": lambda x, most: x * most**0.4,
    "tiny": lambda x, most: x * 1e-6,
    "smallest": lambda x, most: x.sign() * torch.finfo(x.dtype).tiny,
    "denormal": lambda x, most: x.sign() * torch.finfo(x.dtype).tiny / 4,
    "two values": lambda x, most: (x > 0).to(x.dtype),
    "samples of all sizes": lambda x, most: x * torch.logspace(-3, 3, len(x), dtype=x.dtype).view(-1, 1, 1, 1),
    "one dead channel": lambda x, most: x * torch.tensor([1.0, 0.0, 1.0], dtype=x.dtype).view(3, 1, 1),
}


@some
@given(
    cases(
        net=st.sampled_from(["float32", "float32", "float64", *HALVES]), around=st.sampled_from(list(AROUND.values()))
    ),
    st.sampled_from(sorted(VALUES)),
    sizes,
    seeds,
)
def test_values(case, values, size, seed):
    dtype = dtype_of(case.net)
    x = VALUES[values](images(size, seed, dtype=dtype), torch.finfo(dtype).max)
    assert x.isfinite().all()
    assert x.dtype == dtype
    case.try_it("finite values of all sizes", x, x.clone())


@some
@given(
    cases(net=st.sampled_from(["float32", "float32", "float64", *HALVES])),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.sets(st.integers(0, 3), min_size=1),
    st.sampled_from(["one value", "one channel", "all"]),
    seeds,
)
def test_values_that_are_not_finite(case, value, samples, where, seed):
    x = images(4, seed, dtype=dtype_of(case.net))
    spoiled = x.clone()
    for i in samples:
        {"one value": spoiled[i, 1, 3, 3], "one channel": spoiled[i, 2], "all": spoiled[i]}[where].fill_(value)
    before, seen = case.adapter(), []

    def ask(adapter, batch):
        seen.append(Case.ask(case, adapter, batch))
        return seen[-1]

    case.ask = ask
    ended = case.try_it("NaN and infinity", spoiled, None)
    if case.call != "predict":
        assert ended in ("refused", "skipped")
    if ended != "refused":
        (logits,) = seen
        assert logits.isfinite().all()
        rest = [i for i in range(4) if i not in samples]
        if case.who in ALONE and rest:
            assert case.close(logits[rest], before.predict(spoiled.nan_to_num(0, 0, 0))[rest])


class Marked(torch.Tensor):
    """A subclass that says nothing of its own, so that everything made from it is of its kind."""


def learnable(x):
    return x.clone().requires_grad_()


def inferred(x):
    with torch.inference_mode():
        return x.clone()


WRAPPED = {
    "leaf with gradient": learnable,
    "result with gradient": lambda x: learnable(x) * 1,
    "view with gradient": lambda x: learnable(x)[:],
    "parameter": lambda x: nn.Parameter(x.clone()),
    "inference tensor": inferred,
    "subclass": lambda x: x.clone().as_subclass(Marked),
    "buffer": lambda x: nn.Buffer(x.clone()),
    "shared memory": lambda x: x.clone().share_memory_(),
    "read-only numpy": lambda x: torch.frombuffer(bytearray(x.numpy().tobytes()), dtype=x.dtype).view_as(x),
}


@some
@given(cases(around=st.sampled_from(list(AROUND.values()))), st.sampled_from(sorted(WRAPPED)), sizes, seeds)
def test_tensors_with_a_life_of_their_own(case, kind, size, seed):
    x = images(size, seed)
    given_one = WRAPPED[kind](x)
    version = None if given_one.is_inference() else given_one._version
    assert case.try_it("gradients, modes, subclasses", given_one, x.clone()) == "answered"
    assert torch.equal(given_one.detach(), x)
    if version is not None:
        assert given_one._version == version  # not written to, not even with the same values
    if given_one.is_leaf:
        assert given_one.grad is None


@pytest.mark.parametrize("who", sorted(ADAPTERS))
def test_the_campaign_would_notice_a_state_that_changed(who):
    """A refusal that leaves a trace, and an answer that is not the clean one's."""

    class Forgetful(Case):
        def ask(self, adapter, batch):
            try:
                return super().ask(adapter, batch)
            except delta_tta.InputError:
                adapter(self.next)
                raise

    with pytest.raises(AssertionError):
        Forgetful(who).try_it("", None, None)
    with pytest.raises(AssertionError):
        Case(who).try_it("", images(seed=1), images(seed=2))
    state = Case(who).adapter().state_dict()
    assert_same_state(state, Case(who).adapter().state_dict())
