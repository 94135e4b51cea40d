"""Updates in a worker thread, updates that fail, and callers in several threads."""

import gc
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import delta_tta
from all_methods import fitting
from nets import SharedNorm, batches, conv_net, flat_net, flatten, same_state
from processes import run_for_itself


@pytest.mark.parametrize("update", ["every", "slow", "window"])
@pytest.mark.parametrize(
    "method",
    [
        "source",
        "bn",
        "tema",
        "tent",
        "tent+delta",
        "pl+tema",
        "anchored",
        "anchored+sticky",
        "tent+anchored+dot+sticky",
    ],
)
@pytest.mark.parametrize("init", ["first", "inherit"])
def test_background_results_are_the_synchronous_ones(method, update, init):
    settings = {"update": update, "length": 8, "lr": 0.05, "init": init}
    here = fitting(conv_net(), method, **settings)
    there = fitting(conv_net(), method, background=True, **settings)
    buffer = torch.empty(4, 3, 8, 8)
    for x in batches(8, size=4):
        assert torch.equal(here(x), there(buffer.copy_(x)))
        buffer.fill_(float("nan"))  # the caller may reuse its buffer while the worker learns
        mine, theirs = vars(here.signals), vars(there.signals)
        assert all(
            torch.equal(v, theirs[k]) if k == "frequencies" and v is not None else v == theirs[k]
            for k, v in mine.items()
        )
    assert same_state(here, there)


class Gate(torch.nn.Module):
    """Passes gradients on only when opened, or raises."""

    def __init__(self):
        super().__init__()
        self.event, self.error, self.threads = threading.Event(), None, []
        self.closes = False  # behind each one who passes

    def forward(self, x):
        if x.requires_grad:
            x.register_hook(self.hold)
        return x

    def hold(self, gradient):
        self.threads.append(threading.current_thread().name)
        self.event.wait(10)
        if self.closes:
            self.event.clear()
        if self.error:
            raise self.error


def gated():
    net, gate = flat_net(), Gate()
    net.insert(3, gate)
    return net, gate


def test_background_answers_before_it_learns_and_learns_before_the_next_answer():
    net, gate = gated()
    adapter = delta_tta.adapt(net, "tent+delta", background=True, lr=0.1)
    a, b = batches(2, shape=(6,))
    weight = net[1].source.weight
    before = weight.clone()
    adapter(a)  # returns although the gate is closed
    assert torch.equal(weight, before)
    gate.closes = True  # so that what is learnt from b does not touch the weight while it is looked at
    threading.Timer(0.2, gate.event.set).start()
    start = time.perf_counter()
    adapter(b)
    assert time.perf_counter() - start > 0.1
    assert not torch.equal(weight, before)
    gate.closes = False
    gate.event.set()
    adapter.wait()
    assert all(name.startswith("delta-tta") for name in gate.threads)


@pytest.mark.parametrize(
    "touch", ["__call__", "predict", "state_dict", "signals", "wait", "reset", "unload", "load_state_dict", "double"]
)
def test_an_exception_of_the_worker_reaches_the_caller_once(touch):
    net, gate = gated()
    gate.event.set()
    gate.error = ArithmeticError("from the worker")
    adapter = delta_tta.adapt(net, "tent+delta", background=True)
    a, b = batches(2, shape=(6,))
    adapter(a)
    act = (lambda: adapter.signals) if touch == "signals" else getattr(adapter, touch)
    with pytest.raises(ArithmeticError, match="from the worker"):
        act(*{"__call__": [b], "predict": [b], "load_state_dict": [{}]}.get(touch, []))
    gate.error = None
    if touch == "unload":
        assert isinstance(net[1], torch.nn.BatchNorm1d)
    else:
        assert adapter.signals.step == (0 if touch == "reset" else 1)
        assert adapter(b).isfinite().all()
        adapter.wait()


@pytest.mark.parametrize("method", ["tent+delta", "tent+anchored+dot+sticky"])
@pytest.mark.parametrize("update", ["every", "slow", "window"])
def test_a_failed_update_changes_nothing(update, method):
    net, gate = gated()
    gate.event.set()
    adapter = fitting(net, method, lr=0.1, update=update, length=16)
    reference = fitting(flat_net(), method, lr=0.1, update=update, length=16)
    a, b, c = batches(3, shape=(6,))
    adapter(a), reference(a)
    before = flatten(adapter.state_dict())
    gate.error = ArithmeticError("in the middle of the backward pass")
    with pytest.raises(ArithmeticError):
        adapter(b)
    gate.error = None
    after = flatten(adapter.state_dict())
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert (adapter.signals.step, adapter.signals.samples) == (1, 12)
    assert all(p.grad is None for p in net.parameters())
    assert torch.equal(adapter(c), reference(c))


def test_what_the_caller_does_with_the_answer_is_not_learnt():
    net, gate = gated()
    adapter, reference = delta_tta.adapt(net, "tent+delta", background=True), delta_tta.adapt(flat_net(), "tent+delta")
    a = batches(1, shape=(6,))[0]
    hold = threading.Event()
    adapter._worker._executor = ThreadPoolExecutor(1)
    adapter._worker._executor.submit(hold.wait)  # the update begins only after the answer was changed
    adapter(a).zero_()
    gate.event.set()
    hold.set()
    reference(a)
    assert adapter.signals.loss == reference.signals.loss
    adapter.signals.frequencies.zero_()
    assert torch.equal(adapter.state_dict()["reweighting"]["z"], reference.state_dict()["reweighting"]["z"])


def test_an_interrupted_wait_does_not_lose_the_update():
    net, gate = gated()
    adapter = delta_tta.adapt(net, "tent+delta", background=True, lr=0.1)
    reference = delta_tta.adapt(flat_net(), "tent+delta", lr=0.1)
    a = batches(1, shape=(6,))[0]
    adapter(a), reference(a)
    main = threading.main_thread().ident
    threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        adapter.wait()
    threading.Timer(0.2, gate.event.set).start()
    assert torch.equal(adapter.predict(a), reference.predict(a))


def test_an_update_that_could_not_be_started_leaves_no_trace():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", background=True, init="inherit", lr=0.1)
    reference = delta_tta.adapt(conv_net(), "tent+delta", init="inherit", lr=0.1)
    a, b, c = batches(3)
    adapter(a), reference(a)
    adapter.wait()
    adapter._worker._executor.shutdown()
    with pytest.raises(RuntimeError, match="shutdown"):
        adapter(b)
    adapter._worker._executor = None
    assert torch.equal(adapter(c), reference(c))
    assert torch.equal(adapter.predict(a), reference.predict(a))


@pytest.mark.parametrize("update", ["every", "slow", "window"])
@pytest.mark.parametrize("method", ["tema", "tent+delta"])
@pytest.mark.parametrize("net", [conv_net, lambda: torch.nn.Sequential(torch.nn.BatchNorm2d(3), *conv_net())])
def test_background_keeps_the_callers_autocast(net, method, update):
    settings = {"update": update, "length": 8, "lr": 0.05, "dot": "soft"}
    here = fitting(net(), method, **settings)
    there = fitting(net(), method, background=True, **settings)
    for x in batches(6, size=4):
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(here(x), there(x))
    assert same_state(here, there)


def test_a_shared_layer_in_the_background():
    here, there = (delta_tta.adapt(SharedNorm(), "tema", background=b, init="first") for b in (False, True))
    for x in batches(5, shape=(6,)):
        assert torch.equal(here(x), there(x))


def test_callers_in_many_threads_take_turns():
    adapter = delta_tta.adapt(conv_net(), "tent+delta", lr=0.01)
    x = batches(1)[0]
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(adapter if i % 2 else adapter.predict, x) for i in range(40)]:
            assert future.result().isfinite().all()
    assert adapter.signals.step == 20
    reference = delta_tta.adapt(conv_net(), "tent+delta", lr=0.01)
    for _ in range(20):
        reference(x)
    assert same_state(adapter, reference)


def test_the_program_ends_by_itself_after_the_last_update():
    code = (
        "import torch, delta_tta; from torch import nn\n"
        "net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))\n"
        "model = delta_tta.adapt(net, 'tent+delta', background=True)\n"
        "for _ in range(3): model(torch.randn(16, 6))\n"
        "print('answered')\n"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "answered\n", "")


def test_no_thread_is_left_when_the_adapter_goes():
    before = set(threading.enumerate())
    adapter = delta_tta.adapt(conv_net(), "tent+delta", background=True)
    adapter(batches(1)[0])
    adapter.wait()
    (thread,) = set(threading.enumerate()) - before
    assert thread.name.startswith("delta-tta")
    del adapter
    gc.collect()
    thread.join(timeout=5)
    assert not thread.is_alive()


def test_a_caller_who_waited_while_the_adapter_was_unloaded_is_refused():
    net = conv_net()
    source = {name: value.clone() for name, value in net.state_dict().items()}
    adapter = delta_tta.adapt(net, "tent", lr=0.1)
    with ThreadPoolExecutor(1) as pool, adapter._worker.lock:
        waiting = pool.submit(adapter, batches(1)[0])
        while not waiting.running():
            time.sleep(0.001)
        time.sleep(0.05)  # it is at the lock by now
        adapter.unload()
        adapter._worker.lock.release()
        try:
            with pytest.raises(delta_tta.StateError, match="unloaded"):
                waiting.result(timeout=10)
        finally:
            adapter._worker.lock.acquire()
    assert all(torch.equal(value, source[name]) for name, value in net.state_dict().items())


def test_hooks_in_the_worker_never_wait_for_themselves():
    run_for_itself("""
import copy, threading, torch, delta_tta
from nets import batches, conv_net

def hook(*_):
    if threading.current_thread().name.startswith("delta-tta"):
        seen.append(act())

net, seen, xs = conv_net(), [], batches(2)
net[-1].register_forward_hook(hook)
adapter = delta_tta.adapt(net, "tent", background=True, update="slow", length=12)
act = lambda: adapter.signals.step
for x in xs:
    adapter(x)
assert adapter.signals.step == 2
assert set(seen) == {1, 2}, seen

for act in (adapter.wait, adapter.reset, adapter.state_dict, adapter.unload, adapter.double,
            lambda: adapter(xs[0]), lambda: adapter.predict(xs[0]), lambda: copy.deepcopy(adapter)):
    adapter(xs[0])
    try:
        adapter.wait()
    except delta_tta.StateError as error:
        assert "from inside its own background update" in str(error)
    else:
        raise AssertionError("it did not raise")
""")
