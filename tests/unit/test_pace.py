"""The pace of the statistics: how far they follow a batch depends on the classes it shows."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.pace import PRIOR, next_memory, pace_of
from nets import batches, conv_net, flatten


def one_hot(labels, classes=4):
    return torch.nn.functional.one_hot(torch.tensor(labels), classes).double()


def by_pairs(p, f):
    """The definition, pair by pair."""
    pairs = [float(p[i] @ p[j]) for i, j in itertools.permutations(range(len(p)), 2)]
    return min(1.0, float(f @ f) / max(sum(pairs) / len(pairs), 1e-300))


@given(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))
def test_it_is_the_mean_over_pairs(size, classes, seed):
    g = torch.Generator().manual_seed(seed)
    p = (3 * torch.randn(size, classes, generator=g, dtype=torch.float64)).softmax(1)
    f = torch.rand(classes, generator=g, dtype=torch.float64)
    f /= f.sum()
    assert pace_of(p, {"f": f, "seen": torch.tensor(1.0)}) == pytest.approx(by_pairs(p, f))
    assert 0 < pace_of(p, {}) <= 1


def test_one_class_out_of_four_that_take_turns():
    assert pace_of(one_hot([2] * 8), {}) == pytest.approx(0.25)
    assert pace_of(one_hot([0, 1, 2, 3] * 2), {}) == 1
    assert pace_of(one_hot([1]), {}) == 1  # nothing can be said


def test_an_imbalanced_stream_comes_to_full_pace():
    """Shuffled, but nine of ten samples are of one class: its batches are as good as the stream gets."""
    batch, memory, paces = one_hot([0] * 18 + [1, 2]), {}, []
    for _ in range(400):
        paces.append(pace_of(batch, memory))
        memory = next_memory(batch, memory)
    assert paces[0] < 0.35
    assert paces == sorted(paces)
    assert paces[-1] > 0.95


def test_what_is_remembered_is_the_mean_of_all_predictions_and_a_uniform_prior():
    memory, stream = {}, [torch.rand(n, 5, dtype=torch.float64).softmax(1) for n in (3, 50, 7)]
    for p in stream:
        memory = next_memory(p, memory)
    everything = torch.cat(stream)
    expected = (everything.sum(0) + PRIOR / 5) / (PRIOR + len(everything))
    assert torch.allclose(memory["f"], expected)
    assert float(memory["seen"]) == PRIOR + 60


def test_the_far_past_fades():
    memory = {}
    for label in [0] * 400 + [1] * 400:
        memory = next_memory(one_hot([label] * 64), memory)
    assert memory["f"][1] > 0.99


def averages(adapter):
    return flatten(adapter.state_dict()["statistics"])


def test_the_averages_follow_a_batch_as_far_as_its_pace():
    first, second = batches(2, size=16)
    even = delta_tta.adapt(conv_net(), "tema", init="first", alpha=0.5, pace="even")
    even(first)
    even(first)  # the averages are those of the first batch
    before = averages(even)
    diverse = delta_tta.adapt(conv_net(), "tema", init="first", alpha=0.5)
    diverse(first)
    diverse(first)
    memory = diverse.state_dict()["pace"]
    share = 0.5 * pace_of(diverse.predict(second).softmax(1), memory)
    assert 0.05 < share < 0.45
    even(second)
    diverse(second)
    for key, start in before.items():
        target = 2 * averages(even)[key] - start  # the second batch's own
        assert torch.allclose(averages(diverse)[key], torch.lerp(start, target, share), atol=1e-5)


def test_they_start_between_the_source_and_the_first_batch():
    """The share of the first batch is its pace, by the source's predictions or at a second look."""
    x = batches(1, size=16)[0]
    source = delta_tta.adapt(conv_net(), "source")(x)
    at, answers = {}, {}
    for init in ("first", "inherit", "auto"):
        adapter = delta_tta.adapt(conv_net(), "tema", init=init, alpha=1.0)  # the averages stay where they start
        answers[init] = adapter(x)
        at[init] = averages(adapter)
        share = adapter._learner.subject.phase.start
    first = [key for key in at["auto"] if key[0] == "1"]  # the first layer, whose input is the same under all of them
    assert len(first) == 2
    for key in first:
        assert torch.allclose(at["auto"][key], torch.lerp(at["inherit"][key], at["first"][key], share), atol=1e-5)
    # from where it starts the model sees at least as many classes as the source did, if it moved on
    looks = [pace_of(logits.softmax(1), {}) for logits in (source, answers["auto"])]
    assert share >= looks[0]
    assert 0.2 < share < 0.99


def test_even_pace_and_paper_are_the_papers():
    stream = batches(4, size=16)
    by_name = delta_tta.adapt(conv_net(), "tent+delta", paper=True)
    by_hand = delta_tta.adapt(conv_net(), "tent+delta", init="first", pace="even", update="every", guard="off")
    ours = delta_tta.adapt(conv_net(), "tent+delta")
    assert all(torch.equal(by_name(x), by_hand(x)) for x in stream)
    assert not torch.equal(ours(stream[3]), by_name(stream[3]))
    assert delta_tta.adapt(conv_net(), "tent+delta", paper=True, init="inherit").settings.init == "inherit"
