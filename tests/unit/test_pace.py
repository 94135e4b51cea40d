"""The pace of the statistics: how far they follow a batch depends on the classes it shows."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import delta_tta
from delta_tta.pace import (
    KINSHIP,
    LEAST,
    MANY,
    PRIOR,
    SMOOTH,
    WHOLE,
    Look,
    first_memory,
    look,
    next_memory,
    rate,
    reach,
    start,
    unmeasured,
)
from nets import batches, conv_net, flatten


def one_hot(labels, classes=4):
    return torch.nn.functional.one_hot(torch.tensor(labels), classes).double()


def remembered(stream, shift=0.0, distance=0.0):
    """What is remembered of batches that start with a shift and are all so far from the source."""
    first, *others = stream
    memory = first_memory(first, start(look(first, {}), 1.0, 0.0)._replace(shift=shift))
    for p in others:
        memory = next_memory(p, memory, look(p, memory), distance)
    return memory


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
    assert seen.alike == pytest.approx(max(0, (same - 1 / classes) / (1 - 1 / classes)))
    assert 1 / seen.worth == pytest.approx(1 / size + KINSHIP * seen.kinship)


def test_one_class_out_of_four_that_take_turns():
    alone = look(one_hot([2] * 8), {})
    assert alone == (8, pytest.approx(0.25), pytest.approx(1), pytest.approx(1))
    assert alone.worth < 1
    assert look(one_hot([0, 1, 2, 3] * 2), {}) == Look(8, 1, 0)
    assert look(one_hot([0, 1, 2, 3] * 2), {}).worth == 8
    assert look(one_hot([1]), {}) == Look(1, 1, 0)  # nothing can be said
    assert look(one_hot([0, 0], classes=1), {}) == Look(2, 1, 0)
    assert alone.best(look(one_hot([0, 1, 2, 3] * 2), {})).pace == 1


def test_many_classes_in_a_batch_are_as_good_as_all():
    stream = remembered(10 * [one_hot(range(100), classes=100)])
    for memory in ({}, stream):
        sixteen = look(one_hot(4 * list(range(16)), classes=100), memory)
        assert (sixteen.pace, sixteen.kinship, sixteen.alike) == (1, 0, 0)
        two = look(one_hot(32 * [0, 1], classes=100), memory)
        same = 31 / 63  # of 63 others, 31 are of a sample's class
        assert two.pace == pytest.approx(1 / MANY / same)
        assert two.kinship == two.alike == pytest.approx((same - 1 / MANY) / (1 - 1 / MANY))
    ten = look(one_hot(6 * list(range(5)), classes=10), {})
    assert ten.pace == pytest.approx(0.1 * 29 / 5)  # ten classes are fewer than many: here it is all that count


def test_an_imbalanced_stream_comes_to_full_pace():
    """Shuffled, but nine of ten samples are of one class: its batches are as good as the stream gets."""
    batch = one_hot([0] * 18 + [1, 2])
    paces, memory = [look(batch, {}).pace], remembered([batch])
    for _ in range(400):
        seen = look(batch, memory)
        paces.append(seen.pace)
        memory = next_memory(batch, memory, seen, 0.0)
    assert paces[0] < 0.35
    assert paces == sorted(paces)
    assert paces[-1] > 0.95


def test_what_is_remembered_is_the_mean_of_all_predictions_and_a_uniform_prior():
    stream = [torch.rand(n, 5, dtype=torch.float64).softmax(1) for n in (3, 50, 7)]
    memory = remembered(stream)
    everything = torch.cat(stream)
    expected = (everything.sum(0) + PRIOR / 5) / (PRIOR + len(everything))
    assert torch.allclose(memory["f"], expected)
    assert float(memory["seen"]) == PRIOR + 60
    assert float(memory["prior"]) == pytest.approx(PRIOR / (PRIOR + 60))


def test_the_far_past_fades():
    memory = remembered([one_hot([label] * 64) for label in [0] * 400 + [1] * 400])
    assert memory["f"][1] > 0.99
    assert memory["prior"] < 1e-6


def test_averages_over_diverse_batches_begin_as_their_mean():
    """From nothing, the t-th batch moves them by 1/t, until 1−α is more; or less, where batches are small."""
    batch, rates = one_hot([0, 1, 2, 3] * 8), []
    seen = look(batch, {})
    begun = unmeasured(seen)
    memory = first_memory(batch, begun)
    for _ in range(80):
        rates.append(rate(seen, float(memory["doubt"]), 0.95))
        memory = next_memory(batch, memory, seen, 0.0)
    assert begun.share == pytest.approx(1)
    assert rates == pytest.approx([max(1 / t, 0.05 * 32 / WHOLE) for t in range(2, 82)])


@given(st.integers(2, 300), st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 1))
def test_rates_and_doubts_are_what_they_should_be(size, kinship, shift, alpha):
    seen = Look(size, 1 - kinship, kinship)
    share, doubt, *_ = start(seen, 1.0, shift)
    assert 0 <= share <= seen.pace
    assert 0 <= doubt <= 1 / LEAST
    assert (1 - alpha) * seen.pace * min(1, size / WHOLE) <= rate(seen, doubt, alpha) <= 1
    p = torch.rand(size, 2)
    memory = next_memory(p, first_memory(p, start(seen, 1.0, shift)), seen, shift)
    assert float(memory["doubt"]) <= doubt * (1 + 1e-6)
    assert 0 <= reach(memory) <= 1
    assert rate(Look(size, 1 - kinship, 0.0), doubt, alpha) >= rate(seen, doubt, alpha)  # kin tell less


def test_where_nothing_has_shifted_the_source_stays():
    """A batch of B samples of the source is off by about 1 / B; one of a single class, by as much as classes differ."""
    assert start(Look(64, 1.0, 0.0), 1.0, 1 / 64)[:2] == (0, 0)
    assert start(Look(16, 1.0, 0.0), 1.0, 1.8 / 16)[:2] == (0, 0)  # this may be chance
    assert start(Look(64, 0.1, 1.0), 1.0, KINSHIP)[:2] == (0, 0)
    assert start(Look(64, 1.0, 0.0), 2.0, 2.0).share > 0.98
    assert start(Look(64, 1.0, 0.0), 2.0, 2.0).shift == 1 - 2 / 64
    assert 0.05 < start(Look(64, 0.1, 1.0), 1.0, 10 * KINSHIP).share < 0.1
    assert start(Look(64, 1.0, 0.0), 0.0, 5.0) == unmeasured(Look(64, 1.0, 0.0))  # no spread, nothing to compare with
    assert unmeasured(Look(64, 1.0, 0.0)).share == pytest.approx(1)


def test_averages_leave_the_source_where_classes_are_balanced_or_a_shift_was_seen():
    balanced, imbalanced = one_hot([0, 1, 2, 3] * 16), one_hot([0] * 46 + [1, 2, 3] * 6)
    f = imbalanced.mean(0)
    away = KINSHIP * ((float(f @ f) - 0.25) / 0.75 - 1 / 640)
    assert reach(remembered(10 * [balanced])) == 1
    assert reach(remembered(10 * [imbalanced])) == 0
    assert reach(remembered(10 * [imbalanced], shift=3.0)) == pytest.approx(3 / (3 + away))
    assert reach(first_memory(imbalanced, unmeasured(look(imbalanced, {})))) == 1
    assert reach(remembered([one_hot([0, 0], classes=1)])) == 1
    # classes take turns: imbalanced at first, balanced in the long run
    turns = [one_hot([label] * 16) for label in 20 * [0, 1, 2, 3]]
    assert reach(remembered(turns[:2], shift=1.0)) == pytest.approx(1 / (1 + KINSHIP * (1 / 3 - 1 / 32)))
    assert reach(remembered(turns, shift=1.0)) == 1


def test_a_shift_that_comes_later_is_seen_and_not_forgotten():
    batch = one_hot([0] * 46 + [1, 2, 3] * 6)
    expected = 1 / 64 + KINSHIP * look(batch, {}).alike
    memory = remembered(10 * [batch], distance=expected)
    assert reach(memory) == 0
    for _ in range(40):
        memory = next_memory(batch, memory, look(batch, memory), 3 + expected)
    assert float(memory["shift"]) == pytest.approx(3 * (1 - (1 - 64 / SMOOTH) ** 40), rel=1e-4)
    far = reach(memory)
    assert far > 0.7
    for _ in range(40):
        memory = next_memory(batch, memory, look(batch, memory), expected)
    assert float(memory["shift"]) < 0.01
    assert reach(memory) == pytest.approx(far, abs=0.05)


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


def settled_on(images):
    """A network whose statistics are those of the images."""
    net = conv_net()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # a mean over what it sees
    with torch.no_grad():
        net.train()(images)
    return net.eval()


def test_the_averages_go_from_the_source_towards_a_batch_as_far_as_the_reach():
    """In the first layer, whose input is what the convolution makes of the images."""
    images = batches(1, size=256)[0]
    net, stream = settled_on(images), (1.3 * images[:128] + 0.3).split(32)  # which are nearly of one class
    convolution, norm = net[0], net[1]
    source = norm.running_mean.clone(), (norm.running_var + norm.eps).sqrt()
    adapter = delta_tta.adapt(net, "tema", alpha=0.5)
    for x in stream[:-1]:
        adapter(x)
    before = averages(adapter)
    adapter(stream[-1])
    phase = adapter._learner.subject.phase
    assert 0.01 < phase.rate < 0.99
    assert 0.01 < phase.reach < 0.99
    with torch.no_grad():
        features = convolution(stream[-1])
    batch = features.mean((0, 2, 3)), (features.var((0, 2, 3), correction=0) + norm.eps).sqrt()
    for name, old, new in zip(("mean", "std"), source, batch, strict=True):
        expected = torch.lerp(before["1", name], torch.lerp(old, new, phase.reach), phase.rate)
        assert torch.allclose(averages(adapter)["1", name], expected, atol=1e-5)


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
        adapter = delta_tta.adapt(settled_on(x), "tema")
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
