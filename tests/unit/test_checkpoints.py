"""A service that saves as it runs: what it resumes from, what it keeps, and what it does when saving fails."""

import copy
import logging
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import FEW, METHODS, SCHEDULES, assert_same_state, make, stream
from delta_tta import Checkpointer, SettingError, StateError, load_state, save_state
from nets import batches, conv_net, same_state

CASES = [(m, s) for s in ("every", "slow", "window", "background") for m in (METHODS if s == "every" else FEW)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def adapter_of(net=None, **settings):
    return delta_tta.adapt(conv_net() if net is None else net, "tent+delta", "cifar10-c", **settings)


@pytest.mark.parametrize(("method", "schedule"), CASES, ids=[f"{m}-{s}" for m, s in CASES])
def test_resuming_is_as_if_it_had_never_stopped(tmp_path, method, schedule):
    never_stopped = make(method, SCHEDULES[schedule])
    xs = stream(7, size=3)
    expected = [never_stopped(x) for x in xs]
    first = make(method, SCHEDULES[schedule])
    Checkpointer(tmp_path, every=2).attach(first)
    for x in xs[:5]:
        first(x)
    resumed = make(method, SCHEDULES[schedule])
    checkpoints = Checkpointer(tmp_path, every=2).attach(resumed)
    assert checkpoints.resumed.name == "step-000000004.pt"
    assert resumed.signals.step == checkpoints.step == 4
    assert all(torch.equal(resumed(x), y) for x, y in zip(xs[4:], expected[4:], strict=True))
    assert same_state(resumed, never_stopped)
    assert names(tmp_path) == ["step-000000002.pt", "step-000000004.pt", "step-000000006.pt"]


def test_the_newest_are_kept_and_nothing_else_is_touched(tmp_path):
    (tmp_path / "step-1.pt").write_text("not a name of ours")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".step-000000009.pt.123-4.tmp").write_text("of a process that was killed")
    adapter = adapter_of()
    with Checkpointer(str(tmp_path), every=3, keep=2).attach(adapter) as checkpoints:
        assert checkpoints.resumed is None
        for x in batches(10, size=4):
            adapter(x)
            adapter.predict(x)
        assert names(tmp_path) == ["notes.txt", "step-000000006.pt", "step-000000009.pt", "step-1.pt"]
        assert checkpoints.save() == tmp_path / "step-000000010.pt"
        adapter(x)
    assert names(tmp_path) == ["notes.txt", "step-000000010.pt", "step-000000011.pt", "step-1.pt"]
    for x in batches(10, size=4):
        adapter(x)  # the checkpointer is detached
    assert names(tmp_path) == ["notes.txt", "step-000000010.pt", "step-000000011.pt", "step-1.pt"]
    assert (checkpoints.failures, checkpoints.last_error) == (0, None)


def test_the_folder_stays_the_same_when_the_program_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapter = adapter_of()
    with Checkpointer("here").attach(adapter):
        (tmp_path / "there").mkdir()
        monkeypatch.chdir("there")
        adapter(batches(1)[0])
    assert names(tmp_path / "here") == ["step-000000001.pt"]


def test_files_are_numbered_on_after_a_reset_and_after_a_restart(tmp_path):
    adapter = adapter_of()
    xs = batches(4, size=4)
    with Checkpointer(tmp_path / "new" / "folder", every=10).attach(adapter) as checkpoints:
        for x in xs:
            adapter(x)
        checkpoints.save()
        adapter.reset()
        adapter(xs[0])
    again = adapter_of()
    checkpoints.attach(again)
    assert (checkpoints.step, again.signals.step) == (5, 1)  # the state after the reset, not the larger one before
    assert same_state(again, adapter)
    checkpoints.detach()
    busy = adapter_of()
    for x in xs:
        busy(x)
    Checkpointer(tmp_path / "other").attach(busy)
    assert busy.signals.step == 4  # there was nothing to resume from
    Checkpointer(tmp_path / "new" / "folder").attach(busy)
    assert same_state(busy, adapter)


def test_the_folder_may_hold_damaged_files(tmp_path, caplog):
    adapter = adapter_of()
    with Checkpointer(tmp_path, every=1, keep=5).attach(adapter):
        for x in batches(4, size=4):
            adapter(x)
    good = (tmp_path / "step-000000002.pt").read_bytes()
    (tmp_path / "step-000000004.pt").write_bytes(b"")
    (tmp_path / "step-000000003.pt").write_bytes(good[:-100])
    resumed = adapter_of()
    Checkpointer(tmp_path).attach(resumed)
    assert resumed.signals.step == 2
    aside = {"step-000000004.pt.damaged": b"", "step-000000003.pt.damaged": good[:-100]}
    assert names(tmp_path) == sorted([*aside, "step-000000001.pt", "step-000000002.pt"])
    assert all((tmp_path / name).read_bytes() == content for name, content in aside.items())
    assert [(r.name, r.levelname) for r in caplog.records] == [("delta_tta", "WARNING")] * 2
    assert "renamed it to step-000000004.pt.damaged" in caplog.messages[0]
    (tmp_path / "step-000000001.pt").write_bytes(b"PK")
    (tmp_path / "step-000000002.pt").write_bytes(good[:2000])
    (tmp_path / "step-000000004.pt").write_bytes(b"again")
    fresh = adapter_of()
    checkpoints = Checkpointer(tmp_path).attach(fresh)
    assert (checkpoints.resumed, checkpoints.step, fresh.signals.step) == (None, 0, 0)
    assert (tmp_path / "step-000000004.pt.damaged1").read_bytes() == b"again"
    assert len(names(tmp_path)) == 5


def test_a_file_that_came_from_elsewhere_does_not_cost_the_new_ones(tmp_path):
    adapter = adapter_of()
    with Checkpointer(tmp_path, every=1, keep=1).attach(adapter):
        (tmp_path / "step-000000099.pt").write_bytes(b"whatever it is")
        for x in batches(2):
            adapter(x)
    assert names(tmp_path) == ["step-000000002.pt", "step-000000099.pt"]


@pytest.mark.parametrize(
    ("other", "teaches"),
    [
        (lambda: delta_tta.adapt(conv_net(), "pl+delta", "cifar10-c"), "saved by method 'tent\\+delta'"),
        (lambda: adapter_of(lr=0.5), "saved with other settings"),
        (lambda: adapter_of(conv_net(classes=6)), "saved for another model"),
    ],
)
def test_a_checkpoint_of_another_adapter_is_refused_and_everything_stays(tmp_path, other, teaches):
    first = adapter_of()
    with Checkpointer(tmp_path, every=1).attach(first):
        first(batches(1)[0])
    (tmp_path / ".step-000000002.pt.1-2.tmp").write_bytes(b"left over")
    before, adapter = names(tmp_path), other()
    state, checkpoints = adapter.state_dict(), Checkpointer(tmp_path, every=1)
    with pytest.raises(StateError, match=rf"step-000000001\.pt does not fit\. .*{teaches}.* choose another folder"):
        checkpoints.attach(adapter)
    assert_same_state(adapter.state_dict(), state)
    adapter(batches(1)[0])
    assert names(tmp_path) == before
    assert checkpoints.attach(adapter_of()).step == 1


def test_the_stream_goes_on_while_saving_fails_and_is_saved_again_after(tmp_path, caplog):
    caplog.set_level(logging.ERROR, "delta_tta")
    folder, adapter, reference = tmp_path / "checkpoints", adapter_of(), adapter_of()
    checkpoints = Checkpointer(folder, every=2).attach(adapter)
    xs = batches(14, size=4)
    for i, x in enumerate(xs):
        if i == 3:
            shutil.rmtree(folder)
        if i == 9:
            folder.mkdir()
        assert torch.equal(adapter(x), reference(x))
        if i == 8:
            assert checkpoints.failures == 3
            assert isinstance(checkpoints.last_error, FileNotFoundError)
            with pytest.raises(FileNotFoundError):
                checkpoints.save()
    assert (checkpoints.failures, checkpoints.last_error) == (3, None)
    assert names(folder) == ["step-000000010.pt", "step-000000012.pt", "step-000000014.pt"]
    assert len(caplog.records) == 1
    assert "the stream goes on unsaved" in caplog.text


class Failing(nn.Module):
    """Raises in the forward or the backward pass, when told to."""

    def __init__(self):
        super().__init__()
        self.forwards = self.backwards = None

    def forward(self, x):
        if self.forwards is not None:
            raise self.forwards
        if x.requires_grad:
            x.register_hook(self.back)
        return x

    def back(self, _):
        if self.backwards is not None:
            raise self.backwards


def failing():
    net, part = conv_net(), Failing()
    net.insert(9, part)
    return net, part


def test_an_update_that_fails_in_the_background_is_raised_by_the_next_call_not_by_the_saving(tmp_path):
    net, part = failing()
    adapter = adapter_of(net, background=True, update="every")
    checkpoints = Checkpointer(tmp_path, every=2).attach(adapter)
    a, b, c, d = batches(4, size=4)
    adapter(a)
    adapter.wait()
    before = adapter.state_dict()
    part.backwards = ArithmeticError("from the worker")
    assert adapter(b).isfinite().all()
    assert names(tmp_path) == []
    part.backwards = None
    with pytest.raises(ArithmeticError, match="from the worker"):
        adapter(c)
    assert_same_state(adapter.state_dict()["parameters"], before["parameters"])
    adapter(d)
    assert names(tmp_path) == ["step-000000003.pt"]  # a, b and d were answered
    assert (checkpoints.failures, checkpoints.last_error) == (0, None)
    part.backwards = ArithmeticError("again")
    adapter(d)
    with pytest.raises(ArithmeticError, match="again"):
        checkpoints.save()
    assert checkpoints.step == 4
    fresh = adapter_of(failing()[0], update="every")
    assert Checkpointer(tmp_path).attach(fresh).step == 4  # it was saved all the same
    assert same_state(fresh, adapter)


@pytest.mark.parametrize("background", [False, True])
def test_the_end_of_the_block_saves_also_after_an_exception(tmp_path, background):
    net, part = failing()
    adapter = adapter_of(net, background=background)

    def run(error_inside, error_outside):
        with Checkpointer(tmp_path).attach(adapter):
            part.forwards = None
            adapter(batches(1)[0])
            part.forwards = error_inside
            adapter(batches(1)[0])
            raise error_outside

    with pytest.raises(ZeroDivisionError):
        run(None, ZeroDivisionError())
    assert names(tmp_path) == ["step-000000002.pt"]
    with pytest.raises(ArithmeticError, match="in a batch"):
        run(ArithmeticError("in a batch, which changed nothing"), None)
    assert names(tmp_path) == ["step-000000002.pt", "step-000000003.pt"]
    part.forwards = None
    checkpoints = Checkpointer(tmp_path).attach(adapter_of(failing()[0]))
    assert same_state(checkpoints.adapter, adapter)
    checkpoints.detach()
    assert checkpoints.adapter is None


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_a_batch_that_was_interrupted_is_not_saved(tmp_path, caplog, kind, caught):
    """An interrupt may fall between two halves of an update."""
    net, part = failing()
    adapter = adapter_of(net)

    def run():
        try:
            adapter(batches(1)[0])
            part.backwards = kind()
            adapter(batches(1)[0])
        except kind:
            if not caught:
                raise

    with Checkpointer(tmp_path, every=1).attach(adapter):
        adapter(batches(1)[0])
    if caught:
        with Checkpointer(tmp_path, every=10).attach(adapter):
            run()
    else:
        with pytest.raises(kind), Checkpointer(tmp_path, every=10).attach(adapter):
            run()
    assert names(tmp_path) == ["step-000000001.pt"]
    assert "may be half learnt" in caplog.text
    part.backwards = None
    resumed = adapter_of()
    with Checkpointer(tmp_path, every=10).attach(adapter):
        adapter(batches(1)[0])
    assert names(tmp_path) == ["step-000000001.pt", "step-000000002.pt"]
    with pytest.raises(StateError, match="another model"):
        load_state(resumed, tmp_path / "step-000000002.pt")


def test_the_end_of_the_block_raises_what_went_wrong_with_the_last_save(tmp_path, caplog):
    folder, adapter = tmp_path / "checkpoints", adapter_of()
    with pytest.raises(FileNotFoundError), Checkpointer(folder).attach(adapter) as checkpoints:
        shutil.rmtree(folder)
    assert checkpoints.adapter is None

    def run():
        with checkpoints.attach(adapter):
            shutil.rmtree(folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert checkpoints.failures == 1
    assert "the stream goes on unsaved" in caplog.text


def test_callers_in_many_threads(tmp_path):
    adapter = adapter_of(background=True)
    checkpoints = Checkpointer(tmp_path, every=3, keep=100).attach(adapter)
    x = batches(1)[0]
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(adapter, x) for _ in range(40)]:
            assert future.result().isfinite().all()
    assert (checkpoints.step, checkpoints.failures) == (40, 0)
    assert len(names(tmp_path)) == 13
    reference, steps = adapter_of(), {}
    steps[0] = reference.state_dict()
    for i in range(40):
        reference(x)
        steps[i + 1] = reference.state_dict()
    for path in tmp_path.iterdir():
        load_state(reference, path)  # each is the state after some batch, none a mixture
        state, at = reference.state_dict(), steps[reference.signals.step]
        assert_same_state({**at, "checksum": 0}, {**state, "checksum": 0})


def test_a_copy_of_the_adapter_does_not_write_into_the_folder(tmp_path):
    adapter, reference = adapter_of(), adapter_of()
    Checkpointer(tmp_path, every=1).attach(adapter)
    for other in (copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))):
        for x in batches(2):
            assert torch.equal(other(x), reference(x))
        reference.reset()
    assert names(tmp_path) == []
    adapter(x)
    assert names(tmp_path) == ["step-000000001.pt"]


def test_around_the_adapter_may_be_a_compiler_inference_mode_or_a_larger_module(tmp_path):
    torch.compiler.reset()
    adapter = adapter_of()
    Checkpointer(tmp_path, every=1, keep=9).attach(adapter)
    x = batches(1)[0]
    torch.compile(adapter, backend="eager")(x)
    with torch.inference_mode():
        adapter(x)
    nn.Sequential(nn.Identity(), adapter)(x)
    assert len(names(tmp_path)) == 3
    resumed = adapter_of()
    with torch.inference_mode():
        Checkpointer(tmp_path).attach(resumed)
    assert torch.equal(resumed(x), adapter(x))


def test_what_cannot_be_attached_or_saved(tmp_path):
    for wrong in ({"every": 0}, {"keep": 0}, {"every": 2.0}, {"keep": True}, {"every": "all"}):
        with pytest.raises(SettingError, match="at least 1, but got"):
            Checkpointer(tmp_path, **wrong)
    checkpoints = Checkpointer(tmp_path)
    with pytest.raises(StateError, match="call attach"):
        checkpoints.save()
    with pytest.raises(StateError, match="but got Sequential"):
        checkpoints.attach(conv_net())
    adapter = adapter_of()
    checkpoints.attach(adapter)
    with pytest.raises(StateError, match="detach"):
        checkpoints.attach(adapter_of())
    adapter.unload()
    with pytest.raises(StateError, match="unloaded"):
        checkpoints.save()
    checkpoints.detach()
    checkpoints.detach()
    with pytest.raises(StateError, match="unloaded"):
        checkpoints.attach(adapter)
    with checkpoints:
        pass
    assert names(tmp_path) == []


def test_one_file_by_hand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapter = adapter_of()
    for x in batches(3):
        adapter(x)
    save_state(adapter, "adapted.pt")
    resumed = adapter_of()
    load_state(resumed, "adapted.pt")
    assert same_state(adapter, resumed)
    assert same_state(adapter, adapter)
    resumed.load_state_dict(torch.load("adapted.pt", weights_only=True))  # the same file as by torch.save
    torch.save(adapter.state_dict(), "plain.pt")
    load_state(resumed, "plain.pt")
    assert names(tmp_path) == ["adapted.pt", "plain.pt"]
    with pytest.raises(StateError, match=r"none\.pt, but there is no such file"):
        load_state(resumed, "none.pt")
    torch.save({"weights": torch.zeros(3)}, "other.pt")
    with pytest.raises(StateError, match=r"other\.pt: Expected a state saved by an adapter"):
        load_state(resumed, "other.pt")
    threads = [threading.Thread(target=save_state, args=(adapter, "adapted.pt")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load_state(resumed, "adapted.pt")
    assert names(tmp_path) == ["adapted.pt", "other.pt", "plain.pt"]


def test_a_link_stays_a_link_and_the_file_it_leads_to_is_written(tmp_path):
    adapter, resumed = adapter_of(), adapter_of()
    (tmp_path / "states").mkdir()
    for name, target in (("first.pt", "second.pt"), ("second.pt", "states/real.pt")):
        (tmp_path / name).symlink_to(target)
    for x in batches(2):  # at first there is no such file yet
        adapter(x)
        save_state(adapter, tmp_path / "first.pt")
        load_state(resumed, tmp_path / "states" / "real.pt")
        assert same_state(adapter, resumed)
    assert (tmp_path / "first.pt").is_symlink()
    assert (tmp_path / "second.pt").is_symlink()
    assert names(tmp_path / "states") == ["real.pt"]
    assert names(tmp_path) == ["first.pt", "second.pt", "states"]
    whole = (tmp_path / "states" / "real.pt").read_bytes()
    (tmp_path / "states").rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        save_state(adapter, tmp_path / "first.pt")
    assert (tmp_path / "gone" / "real.pt").read_bytes() == whole
    (tmp_path / "loop.pt").symlink_to("loop.pt")
    with pytest.raises(OSError, match=r"loop\.pt"):
        save_state(adapter, tmp_path / "loop.pt")
    assert (tmp_path / "loop.pt").is_symlink()


def test_without_a_number_of_batches_it_saves_where_it_is_told_to(tmp_path, caplog):
    adapter = delta_tta.adapt(conv_net(), "tent+delta")
    checkpoints = Checkpointer(tmp_path / "folder", every=None)
    assert not checkpoints.try_save()  # nothing is attached
    checkpoints.attach(adapter)
    for x in batches(3):
        adapter(x)
    assert list(checkpoints.folder.iterdir()) == []
    assert checkpoints.try_save()
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-000000003.pt"]
    shutil.rmtree(checkpoints.folder)
    assert not checkpoints.try_save()
    assert not checkpoints.try_save()
    assert (checkpoints.failures, len(caplog.records)) == (2, 1)
    assert isinstance(checkpoints.last_error, FileNotFoundError)
    checkpoints.folder.mkdir()
    assert checkpoints.try_save()
    assert checkpoints.last_error is None
    resumed = delta_tta.adapt(conv_net(), "tent+delta")
    assert Checkpointer(checkpoints.folder).attach(resumed).step == 3
    assert same_state(resumed, adapter)
