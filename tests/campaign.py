"""What a bad batch may do to an adapter, and the book of all cases that were tried.

A case is one batch between good ones. It ends as one of
- answered: the answer, and all later ones, are those that a clean copy of the same values gets;
- skipped: answered, but not learnt from; the state, and the next answer, are as if it had never come;
- refused: an error of ours; the same, and the counters did not move either;
- model's error: the model itself, without an adapter, says the same; likewise.
Every other exception is a failure.
"""

import contextlib
import functools
from collections import Counter

import torch
from torch import nn

import delta_tta
from all_methods import assert_same_state, fitting
from delta_tta.signals import Reason
from nets import CLASSES, batches, conv_net, flatten

ADAPTERS = {
    "bn": ("bn", {}),
    "bn with prior": ("bn", {"prior": 16}),
    "tema": ("tema", {}),
    "tent": ("tent", {}),
    "tent+delta": ("tent+delta", {}),
    "ent-w+delta": ("ent-w+delta", {}),
    "eta": ("eta", {}),
    "lame": ("lame", {}),
    "anchored": ("anchored", {}),
    "recommended": (None, {}),
    "sticky": ("tent+delta+sticky", {}),
    "unguarded": ("tent+delta", {"guard": "off"}),
    "auto": ("tent+delta", {"update": "auto", "length": 8}),
    "slow": ("tent+delta", {"update": "slow", "length": 8}),
    "window": ("tent+delta", {"update": "window", "length": 8}),
    "tent in a window": ("tent", {"update": "window", "length": 8}),
    "background": ("tent+delta", {"background": True}),
    "recommended in background": (None, {"background": True}),
    "slow in background": ("tent+delta", {"update": "slow", "length": 8, "background": True}),
}
ALONE = ("tema", "tent+delta", "ent-w+delta", "unguarded", "auto", "slow", "window", "background", "slow in background")
"""In these the answer to a sample does not depend on the others of its batch."""
ENDS = ("answered", "skipped", "refused", "model's error")
BENIGN = ("no sample passed", "collecting samples")
"""Skipped for other reasons than the batch being bad."""
LEARNT = (
    "parameters",
    "statistics",
    "optimizer",
    "objective",
    "reweighting",
    "shares",
    "filter",
    "fisher",
    "classes",
    "cache",
)

CASES: Counter[tuple[str, str]] = Counter()
"""How often each kind of batch ended in each way."""


class Casting(nn.Module):
    """A model that takes images in any type of real numbers."""

    def __init__(self):
        super().__init__()
        self.net = conv_net()

    def forward(self, x):
        return self.net(x if x.is_complex() else x.float())


NETS = {
    "float32": conv_net,
    "float64": lambda: conv_net().double(),
    "bfloat16": lambda: conv_net().bfloat16(),
    "float16": lambda: conv_net().half(),
    "casting": Casting,
}


def dtype_of(net):
    return torch.float32 if net == "casting" else getattr(torch, net)


class Case:
    """Where a batch meets an adapter: which adapter, on which network, how far along, by which call."""

    def __init__(self, who, net="float32", warm=1, call="adapter", around=contextlib.nullcontext):
        self.who, self.net, self.warm, self.call, self.around = who, net, warm, call, around
        *self.first, self.next = (x.to(dtype_of(net)) for x in batches(warm + 1, size=5))

    def __repr__(self):
        return f"{self.call} of {self.who!r} on {self.net}, {self.warm} batches before, {self.around}"

    def adapter(self):
        """An adapter that has seen the good batches that come before."""
        method, settings = ADAPTERS[self.who]
        adapter = fitting(NETS[self.net](), method, lr=0.02, **{"update": "every", "guard": "on", **settings})
        for x in self.first:
            adapter(x)
        adapter.wait()
        return adapter

    def ask(self, adapter, images):
        with self.around():
            logits = (adapter if self.call == "adapter" else adapter.predict)(images)
        adapter.wait()
        return logits

    def try_it(self, kind, images, clean):
        """Let the batch come, hold the adapter to its promises, and note how it ended.

        Args:
            kind: under which it is counted.
            images: the batch.
            clean: the same values in a plain tensor of the network's type; None where there is no such tensor.
        """
        adapter = self.adapter()
        before, memory = adapter.state_dict(), bytes_of(images)
        logits = error = None
        try:
            logits = self.ask(adapter, images)
        except delta_tta.DeltaError:
            ended = "refused"
        except (RuntimeError, ValueError) as its:
            ended, error = "model's error", its
        if error is not None:
            assert type(error) is type(self.own_error(images)), error
        if logits is not None:
            ended = self.check_answer(adapter, logits, before, images, clean)
        assert torch.equal(bytes_of(images), memory)
        if ended in ("refused", "model's error"):
            assert_same_state(adapter.state_dict(), before)
        if ended != "answered":
            assert torch.equal(adapter(self.next), undisturbed(self.who, self.net, self.warm))
        CASES[kind, ended] += 1
        return ended

    def own_error(self, images):
        """Return what the network alone raises."""
        try:
            with torch.no_grad(), self.around():
                NETS[self.net]().eval()(images)
        except Exception as error:
            return error
        return None

    def check_answer(self, adapter, logits, before, images, clean):
        assert logits.shape == (len(images), CLASSES)
        assert not logits.requires_grad
        after, skipped = adapter.state_dict(), adapter.signals.skipped
        ended = "answered" if skipped is None or skipped.startswith(BENIGN) else "skipped"
        if self.call == "predict":
            ended = "answered"
            assert_same_state(after, before)
        elif ended == "skipped":
            if not (skipped.reason is Reason.NOT_FINITE and "prediction" in skipped):
                assert logits.isfinite().all()
            # the cache of slow held good samples, too, and is empty now
            same = [part for part in LEARNT if part != "cache" or ("slow" not in self.who and self.who != "auto")]
            assert_same_state({part: after[part] for part in same}, {part: before[part] for part in same})
        assert all(t.isfinite().all() for t in flatten({part: after[part] for part in LEARNT}).values())
        if clean is not None:
            honest = self.adapter()
            assert self.close(logits, self.ask(honest, clean))
            assert adapter.signals.skipped == honest.signals.skipped
            if ended == "answered":
                self.check_next(adapter, honest, images.dtype == clean.dtype)
        return ended

    def check_next(self, adapter, honest, same_type):
        """The next good batch gets the same answer, unless slow or window keep samples it does not go with."""
        mine, theirs = self.outcome(adapter), self.outcome(honest)
        if isinstance(mine, type):
            if same_type:
                assert mine is theirs
        else:
            assert self.close(mine, theirs)

    def close(self, a, b):
        """Equal up to the order of sums, which depends on the layout of the memory."""
        a, b = a.double(), b.double()
        share = 1e-4 if self.net in ("float32", "float64", "casting") and self.around is contextlib.nullcontext else 0.1
        size = b.abs().nan_to_num(0, 0, 0).max().item()
        return torch.allclose(a, b, rtol=share, atol=share * size, equal_nan=True)

    def outcome(self, adapter):
        try:
            return adapter(self.next)
        except delta_tta.InputError as error:
            return type(error)


@functools.cache
def undisturbed(who, net, warm):
    """Return the answer to the next good batch where nothing came between."""
    case = Case(who, net, warm)
    return case.adapter()(case.next)


def bytes_of(x):
    """Return a copy of the memory behind a dense tensor; of anything else, nothing."""
    if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_nested or x.is_meta:
        return torch.empty(0)
    with torch.inference_mode(False):
        return torch.empty(0, dtype=torch.uint8).set_(x.detach().untyped_storage()).clone()


def table():
    """The cases as lines of Markdown."""
    kinds = sorted({kind for kind, _ in CASES})
    yield f"| batches | tried | {' | '.join(ENDS)} |"
    yield "|---" * (2 + len(ENDS)) + "|"
    for kind in (*kinds, "all"):
        counts = [sum(CASES[k, end] for k in kinds if kind in (k, "all")) for end in ENDS]
        yield f"| {kind} | {sum(counts):,} | {' | '.join(f'{n:,}' for n in counts)} |"
