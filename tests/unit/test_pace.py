"""The pace of the statistics: how far they follow a batch depends on the classes it shows."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.norms.shift import UNKNOWN
from delta_tta.pace import KINSHIP, LEAST, PRIOR, WHOLE, Look, look, next_memory, rate, start
from nets import batches, conv_net, flatten


def one_hot(labels, classes=4):
    return torch.nn.functional.one_hot(torch.tensor(labels), classes).double()


def by_pairs(p):
    """The chance that two samples are of one class, pair by pair."""
    pairs = [float(p[i] @ p[j]) for i, j in itertools.permutations(range(len(p)), 2)]
    return max(sum(pairs) / len(pairs), 1e-300)


@given(st.integers(2, 12), st.integers(2, 6), st.integers(0, 10**6))
def test_it_is_the_mean_over_pairs(size, classes, seed):
    g = torch.Generator().manual_seed(seed)
    p = (3 * torch.randn(size, classes, generator=g, dtype=torch.float64)).softmax(1)
    f = torch.rand(classes, generator=g, dtype=torch.float64)
    f /= f.sum()
    seen, same, usual = look(p, {"f": f}), by_pairs(p), float(f @ f)
    assert seen.pace == pytest.approx(min(1, usual / same))
    assert seen.kinship == pytest.approx(max(0, (same - usual) / (1 - usual)))
    assert 1 / seen.worth == pytest.approx(1 / size + KINSHIP * seen.kinship)


def test_one_class_out_of_four_that_take_turns():
    alone = look(one_hot([2] * 8), {})
    assert (alone.size, alone.pace, alone.kinship) == (8, pytest.approx(0.25), pytest.approx(1))
    assert alone.worth < 1
    assert look(one_hot([0, 1, 2, 3] * 2), {}) == Look(8, 1, 0)
    assert look(one_hot([0, 1, 2, 3] * 2), {}).worth == 8
    assert look(one_hot([1]), {}) == Look(1, 1, 0)  # nothing can be said
    assert look(one_hot([0, 0], classes=1), {}) == Look(2, 1, 0)
    assert alone.best(look(one_hot([0, 1, 2, 3] * 2), {})).pace == 1


def test_an_imbalanced_stream_comes_to_full_pace():
    """Shuffled, but nine of ten samples are of one class: its batches are as good as the stream gets."""
    batch, memory, paces = one_hot([0] * 18 + [1, 2]), {}, []
    for _ in range(400):
        seen = look(batch, memory)
        paces.append(seen.pace)
        memory = next_memory(batch, memory, seen, 0.0)
    assert paces[0] < 0.35
    assert paces == sorted(paces)
    assert paces[-1] > 0.95


def test_what_is_remembered_is_the_mean_of_all_predictions_and_a_uniform_prior():
    memory, stream = {}, [torch.rand(n, 5, dtype=torch.float64).softmax(1) for n in (3, 50, 7)]
    for p in stream:
        memory = next_memory(p, memory, look(p, memory), 0.0)
    everything = torch.cat(stream)
    expected = (everything.sum(0) + PRIOR / 5) / (PRIOR + len(everything))
    assert torch.allclose(memory["f"], expected)
    assert float(memory["seen"]) == PRIOR + 60


def test_the_far_past_fades():
    memory = {}
    for label in [0] * 400 + [1] * 400:
        batch = one_hot([label] * 64)
        memory = next_memory(batch, memory, look(batch, memory), 0.0)
    assert memory["f"][1] > 0.99


def test_averages_over_diverse_batches_begin_as_their_mean():
    """From nothing, the t-th batch moves them by 1/t, until 1−α is more; or less, where batches are small."""
    batch, rates = one_hot([0, 1, 2, 3] * 8), []
    seen = look(batch, {})
    share, doubt = start(seen, UNKNOWN)
    memory = next_memory(batch, {}, seen, doubt)
    for _ in range(80):
        rates.append(rate(seen, float(memory["doubt"]), 0.95))
        memory = next_memory(batch, memory, seen)
    assert share == pytest.approx(1)
    assert rates == pytest.approx([max(1 / t, 0.05 * 32 / WHOLE) for t in range(2, 82)])


@given(st.integers(2, 300), st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1))
def test_rates_and_doubts_are_what_they_should_be(size, kinship, shift, alpha):
    seen = Look(size, 1 - kinship, kinship)
    share, doubt = start(seen, shift)
    assert 0 <= share <= seen.pace
    assert 0 <= doubt <= 1 / LEAST
    assert (1 - alpha) * seen.pace * min(1, size / WHOLE) <= rate(seen, doubt, alpha) <= 1
    memory = {"f": torch.full((2,), 0.5), "seen": torch.tensor(1.0), "doubt": torch.tensor(doubt)}
    assert float(next_memory(torch.rand(size, 2), memory, seen)["doubt"]) <= doubt * (1 + 1e-6)
    assert rate(Look(size, 1 - kinship, 0.0), doubt, alpha) >= rate(seen, doubt, alpha)  # kin tell less


def test_where_nothing_has_shifted_the_source_stays():
    """A batch of B samples of the source is off by about 1 / B; one of a single class, by as much as classes differ."""
    assert start(Look(64, 1.0, 0.0), 1 / 64) == (0, 0)
    assert start(Look(64, 0.1, 1.0), KINSHIP) == (0, 0)
    assert start(Look(64, 1.0, 0.0), 1.0)[0] > 0.98
    assert 0.05 < start(Look(64, 0.1, 1.0), 10 * KINSHIP)[0] < 0.1


def averages(adapter):
    return flatten(adapter.state_dict()["statistics"])


def test_the_averages_follow_a_batch_as_far_as_its_rate():
    first, second = batches(2, size=16)
    even = delta_tta.adapt(conv_net(), "tema", init="first", alpha=0.5, pace="even")
    even(first)
    even(first)  # the averages are those of the first batch
    before = averages(even)
    diverse = delta_tta.adapt(conv_net(), "tema", init="first", alpha=0.5)
    diverse(first)
    diverse(first)
    memory = diverse.state_dict()["pace"]
    share = rate(look(diverse.predict(second).softmax(1), memory), float(memory["doubt"]), 0.5)
    assert 0.02 < share < 0.45
    even(second)
    diverse(second)
    for key, begin in before.items():
        target = 2 * averages(even)[key] - begin  # the second batch's own
        assert torch.allclose(averages(diverse)[key], torch.lerp(begin, target, share), atol=1e-5)


def test_they_start_between_the_source_and_the_first_batch():
    """In the first layer, as nothing else can be seen from outside: by the share that was chosen."""
    x = batches(1, size=16)[0]
    at = {}
    for init in ("first", "inherit", "auto"):
        adapter = delta_tta.adapt(conv_net(), "tema", init=init, alpha=1.0)  # the averages stay where they start
        adapter(x)
        at[init], share = averages(adapter), adapter._learner.subject.phase.start
    first = [key for key in at["auto"] if key[0] == "1"]  # the first layer, whose input is the same under all of them
    assert len(first) == 2
    for key in first:
        assert torch.allclose(at["auto"][key], torch.lerp(at["inherit"][key], at["first"][key], share), atol=1e-5)
    assert 0.1 < share < 0.9


def test_images_of_the_source_itself_leave_it_as_it_is():
    """Few classes in a batch would not do: the pace is about the same for both."""
    x, starts = batches(1, size=256)[0], []
    for images in (x[:32], 2 * x[:32] + 1):
        net = conv_net()
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.reset_running_stats()
                module.momentum = None  # a mean over what it sees
        net.train()
        with torch.no_grad():
            net(x)
        adapter = delta_tta.adapt(net.eval(), "tema")
        adapter(images)
        starts.append(adapter._learner.subject.phase.start)
    assert starts[0] == 0
    assert 0.3 < starts[1] < 1


def test_even_pace_and_paper_are_the_papers():
    stream = batches(4, size=16)
    by_name = delta_tta.adapt(conv_net(), "tent+delta", paper=True)
    by_hand = delta_tta.adapt(conv_net(), "tent+delta", init="first", pace="even", update="every", guard="off")
    ours = delta_tta.adapt(conv_net(), "tent+delta")
    assert all(torch.equal(by_name(x), by_hand(x)) for x in stream)
    assert not torch.equal(ours(stream[3]), by_name(stream[3]))
    assert delta_tta.adapt(conv_net(), "tent+delta", paper=True, init="inherit").settings.init == "inherit"
