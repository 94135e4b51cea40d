"""Many threads at one adapter: whatever they call, it is as if one had called after the other."""

import faulthandler
import random
import sys
import threading

import pytest
import torch

import delta_tta
from all_methods import fitting
from nets import batches, conv_net, flatten, same, snapshot

PATIENCE = 120  # seconds after which threads that do not end count as a deadlock
THREADS, CALLS = 6, 10
SETTINGS = {
    "every": {},
    "background": {"background": True},
    "slow": {"update": "slow", "length": 10},
    "slow in background": {"update": "slow", "length": 10, "background": True},
    "window": {"update": "window", "length": 10},
}


class Turns:
    """The adapter's lock, which also takes down who had a turn."""

    def __init__(self):
        self.lock, self.depth, self.order = threading.RLock(), 0, []
        self.doing = threading.local()  # what the thread is about to ask for

    def __enter__(self):
        self.lock.acquire()
        if not self.depth:
            self.order.append(self.doing.now)
        self.depth += 1

    def __exit__(self, *_):
        self.depth -= 1
        self.lock.release()


@pytest.fixture
def _restless():
    """Threads that change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def at_once(tasks):
    """Run the tasks in a thread each; raise what they raised."""
    errors = []

    def guarded(task):
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if any(thread.is_alive() for thread in threads):
        faulthandler.dump_traceback(all_threads=True)
        pytest.fail(f"threads wait for each other: {[t.name for t in threads if t.is_alive()]}")
    if errors:
        raise errors[0]


def ask(adapter, what, xs, state):
    """Call the adapter and return all that came back."""
    kind, number = what
    if kind == "call":
        return {"logits": adapter(xs[number])}
    if kind == "predict":
        return {"logits": adapter.predict(xs[number])}
    if kind == "bad":
        with pytest.raises(delta_tta.InputError):
            adapter(xs[number].double())
    elif kind == "signals":
        return vars(adapter.signals)
    elif kind == "state":
        now = adapter.state_dict()
        return {**flatten(now), **{key: now[key] for key in ("step", "samples", "classes")}}
    elif kind == "load":
        adapter.load_state_dict(state)
    else:
        adapter.reset()
    return {}


def equal(a, b):
    return a.keys() == b.keys() and all(
        torch.equal(v, b[k]) if isinstance(v, torch.Tensor) and b[k] is not None else v == b[k] for k, v in a.items()
    )


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize(
    ("method", "schedule"),
    [*(("tent+delta", schedule) for schedule in SETTINGS), ("ent-w+delta+lame", "every"), ("eta", "background")],
)
def test_every_answer_is_the_one_of_its_turn(method, schedule):
    settings = {"lr": 0.05, **SETTINGS[schedule]}
    adapter = fitting(conv_net(), method, **settings)
    reference = fitting(conv_net(), method, **{**settings, "background": False})
    xs = batches(THREADS * CALLS, size=3)
    adapter(xs[0])
    state = adapter.state_dict()
    adapter.reset()
    turns = adapter._worker.lock = Turns()
    draw = random.Random(0)
    kinds = ["call"] * 6 + ["predict", "signals", "signals", "state", "state", "bad", "load", "reset"]
    plans = [[(draw.choice(kinds), thread * CALLS + i) for i in range(CALLS)] for thread in range(THREADS)]
    came = {}

    def work(plan):
        for what in plan:
            turns.doing.now = what
            came[what] = ask(adapter, what, xs, state)

    at_once([lambda plan=plan: work(plan) for plan in plans])
    assert sorted(turns.order) == sorted(what for plan in plans for what in plan)  # one turn each
    assert [number for _, number in turns.order] != sorted(number for _, number in turns.order)  # they did mix
    for what in turns.order:
        assert equal(came[what], ask(reference, what, xs, state)), what
    turns.doing.now = ("state", -1)
    assert equal(ask(adapter, ("state", -1), xs, state), ask(reference, ("state", -1), xs, state))


def test_signals_are_of_one_moment():
    """Somebody else's batch comes as soon as the reader of the signals has had his turn."""
    adapter = delta_tta.adapt(conv_net(), "tent+delta", background=True, update="every")
    first, second = batches(2, size=3)
    adapter(first)

    class Eager(Turns):
        def __exit__(self, *_):
            super().__exit__()
            if len(self.order) == 1:
                adapter(second)

    adapter._worker.lock = Eager()
    adapter._worker.lock.doing.now = "signals"
    signals = adapter.signals
    assert signals.step == 1
    assert signals.loss is not None
    assert adapter.signals.step == 2


@pytest.mark.usefixtures("_restless")
@pytest.mark.parametrize("background", [False, True])
def test_unloading_under_many_callers(background):
    net = conv_net()
    source = snapshot(net)
    adapter = delta_tta.adapt(net, "tent+delta", lr=0.05, background=background)
    x = batches(1, size=3)[0]
    answered = threading.Semaphore(0)
    refused = []

    def work():
        while True:
            try:
                assert adapter(x).isfinite().all()
            except delta_tta.StateError as error:
                refused.append(str(error))
                return
            answered.release()

    def unload():
        for _ in range(3 * THREADS):
            assert answered.acquire(timeout=PATIENCE)
        adapter.unload()

    at_once([unload, *[work] * THREADS])
    assert len(refused) == THREADS
    assert all("unloaded" in words for words in refused)
    assert same(snapshot(net), source)


@pytest.mark.usefixtures("_restless")
def test_adapters_of_different_threads_do_not_meet():
    """Gradients, autocast and inference mode belong to the thread; one's must not be another's."""
    xs = batches(12, size=3)

    def answers(adapter, around):
        found = []
        for x in xs:
            with around():
                found.append(adapter(x))
        return found

    modes = [torch.no_grad, torch.inference_mode, torch.enable_grad, lambda: torch.autocast("cpu", torch.bfloat16)]
    adapters = [(delta_tta.adapt(conv_net(), "tent+delta", lr=0.05), around) for around in modes]
    expected = [answers(*pair) for pair in adapters]
    for adapter, _ in adapters:
        adapter.reset()
    came = {}
    at_once([lambda i=i: came.update({i: answers(*adapters[i])}) for i in range(len(modes))])
    for i, one in enumerate(expected):
        assert all(torch.equal(a, b) for a, b in zip(one, came[i], strict=True))
