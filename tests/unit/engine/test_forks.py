"""os.fork around adapters, in a process of its own: one that hangs is stopped, and fails."""

import os

import pytest

from processes import run_for_itself

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

BEGIN = """
import multiprocessing, os, threading
import torch, delta_tta
from delta_tta.engine import forks
from nets import batches, conv_net
torch.set_num_threads(1)

def in_child(act):
    child = os.fork()
    if not child:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return child

def ended_well(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def raises(kind, act, text):
    try:
        act()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError("nothing was raised")
"""


def test_both_sides_go_on_where_the_stream_was():
    run_for_itself(
        BEGIN
        + """
adapter = delta_tta.adapt(conv_net(), "tent+delta", background=True, lr=0.01)
reference = delta_tta.adapt(conv_net(), "tent+delta", lr=0.01)
a, b, c = batches(3)
adapter(a), reference(a)  # its update is under way when the process forks

def go_on():
    for x in (b, c):
        assert torch.equal(adapter(x), reference(x))
    assert adapter.signals.step == 3

child = in_child(go_on)
go_on()
assert ended_well(child)

adapter(a)  # a child with a thread of its own ends by itself
child = multiprocessing.get_context("fork").Process(target=adapter, args=(a,))
child.start()
child.join()
assert child.exitcode == 0

def fail(gradient):  # what an update raised is told on both sides
    raise ArithmeticError("in the update")

def arm(layer, inputs):
    if inputs[0].requires_grad:
        inputs[0].register_hook(fail)

adapter.model[-1].register_forward_pre_hook(arm)
adapter(b)
child = in_child(lambda: raises(ArithmeticError, adapter.wait, "in the update"))
raises(ArithmeticError, adapter.wait, "in the update")
assert ended_well(child)
"""
    )


@pytest.mark.slow
def test_a_fork_while_another_thread_answers():
    run_for_itself(
        BEGIN
        + """
def answer():
    while not ended.is_set():
        adapter(x)

def go_on():
    step = adapter.signals.step
    assert adapter(x).isfinite().all()
    assert adapter.signals.step == step + 1

for background in (False, True):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", background=background, lr=0.01)
    x, ended = batches(1)[0], threading.Event()
    thread = threading.Thread(target=answer)
    thread.start()
    try:
        assert all([ended_well(child) for child in [in_child(go_on) for _ in range(4)]])
    finally:
        ended.set()
    thread.join()
    adapter.wait()
"""
    )


@pytest.mark.slow
def test_a_child_that_began_in_the_middle_of_something_says_so():
    run_for_itself(
        BEGIN
        + """
def refused():
    ended.set()
    for act in (lambda: adapter(x), lambda: adapter.signals, adapter.wait, adapter.reset, adapter.unload):
        raises(delta_tta.StateError, act, "forked while another thread used the adapter")

x, running, ended = batches(1)[0], threading.Event(), threading.Event()

def hold(*_):
    running.set()
    ended.wait(30)

net = conv_net()
net[0].register_forward_hook(hold)
adapter = delta_tta.adapt(net, "tent")
thread = threading.Thread(target=adapter, args=(x,))
thread.start()
running.wait()
forks.PATIENCE = 0.2  # a fork does not wait for ever
assert ended_well(in_child(refused))
ended.set()
thread.join()
assert adapter.signals.step == 1

children = []

def fork(*_):  # from inside an update
    if threading.current_thread().name.startswith("delta-tta"):
        children.append(in_child(refused))

net = conv_net()
net[0].register_forward_hook(fork)
adapter = delta_tta.adapt(net, "tent", background=True, update="slow", length=12)
adapter(x)
assert adapter.signals.step == 1
assert children and all(map(ended_well, children))
"""
    )
