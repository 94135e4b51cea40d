"""The filter over the stream: against a plain hidden Markov model, and what it promises."""

import math

import numpy as np
import pytest
import torch

import delta_tta
from all_methods import assert_same_state, fitting, saved_and_loaded
from delta_tta import InputError, Settings, StateError
from delta_tta.adapt import RECOMMENDED, WITHOUT_BATCH_NORM
from delta_tta.evidence import MEMORY, MEMORY_OF_ANSWERS, STAYS, TEMPERATURES, forward_filters
from delta_tta.postprocess.sticky import Sticky
from delta_tta.rules.answers import LEVELS, WIDTH
from delta_tta.rules.filters import DOUBT, NEGLIGIBLE, PRIOR, STREAMS, filtered_beliefs
from nets import CLASSES, batches, bright, channel_net, conv_net, group_norm

GRID = [(float(t), float(s)) for t in TEMPERATURES for s in STAYS]


def walk(likelihoods, q, stay, start):
    """Forward and backward with the whole matrix of transitions: filtered, smoothed, and each log Z."""
    classes = q.shape[1]
    moves = [stay * torch.eye(classes, dtype=torch.float64) + (1 - stay) * own.expand(classes, classes) for own in q]
    forward, log_z, belief = [], [], start
    for met, move in zip(likelihoods, moves, strict=True):
        joint = (belief @ move) * met
        log_z.append(math.log(float(joint.sum())))
        belief = joint / joint.sum()
        forward.append(belief)
    backward = [torch.ones(classes, dtype=torch.float64)]
    for met, move in reversed([*zip(likelihoods[1:], moves[1:], strict=True)]):
        backward.insert(0, move @ (met * backward[0]))
    both = torch.stack([f * b for f, b in zip(forward, backward, strict=True)])
    return torch.stack(forward), both / both.sum(1, keepdim=True), log_z


def near(sharpness, level):
    """How much such an image belongs to a level; they repeat."""
    apart = (sharpness / WIDTH - level) % LEVELS
    return max(0, 1 - min(apart, LEVELS - apart))


class Plain:
    """The same filters, one by one and in float64."""

    def __init__(self, mode):
        self.mode, self.known = mode, []  # a weight, a sharpness and a sample's answers each
        self.beliefs, self.evidence = {}, dict.fromkeys(GRID, 0.0)

    def mean(self, t, sharpness, uniform, classes):
        """The mean answer to images as sharp as that: of the two levels next to it."""
        answers = [(weight, at, own[t]) for weight, at, own in self.known]
        total = sum(weight for weight, _, _ in answers)
        of_all = sum(weight * p for weight, _, p in answers) / total
        found = 0
        for level in range(LEVELS):
            there = [(weight * near(at, level), p) for weight, at, p in answers]
            own = (sum(weight * p for weight, p in there) + 32 * of_all) / (sum(weight for weight, _ in there) + 32)
            found = found + near(sharpness, level) * own
        return (total * found + uniform / classes) / (total + uniform)

    def answer(self, logits, names, sharpness=None):
        """Return probabilities."""
        size, classes = logits.shape
        sharpness = [0.0] * size if sharpness is None else sharpness
        p = {float(t): (logits.double() / float(t)).softmax(1) for t in TEMPERATURES}
        q, q_of_answers = ({t: [] for t in p} for _ in range(2))  # at each sample
        together = size if self.mode == "smooth" else 1
        for start in range(0, size, together):
            keep = math.exp(-together / MEMORY_OF_ANSWERS)
            self.known = [(keep * weight, at, own) for weight, at, own in self.known]
            rows = range(start, start + together)
            self.known += [(1.0, sharpness[i], {t: own[i] for t, own in p.items()}) for i in rows]
            for t in p:
                q[t] += [self.mean(t, sharpness[i], PRIOR, classes) for i in rows]
                uniform = classes if self.mode == "smooth" else PRIOR
                q_of_answers[t] += [self.mean(t, sharpness[i], uniform, classes) for i in rows]
        q, q_of_answers = ({t: torch.stack(each) for t, each in found.items()} for found in (q, q_of_answers))
        out = p[1.0].clone()
        for name in dict.fromkeys(names):
            rows = [i for i in range(size) if names[i] == name]
            found, evidence = {}, {}
            for t, s in GRID:
                start = self.beliefs.get((name, t, s), q[t][rows[0]])
                believed, _, log_z = walk([p[t][i] / q[t][i] for i in rows], q[t][rows], s, start)
                self.beliefs[name, t, s] = believed[-1]
                own = q_of_answers[t]
                filtered, smoothed, _ = walk([p[t][i] / own[i] for i in rows], own[rows], s, start)
                found[t, s] = smoothed if self.mode == "smooth" else filtered
                told = []
                for new in log_z:
                    self.evidence[t, s] = math.exp(-1 / MEMORY) * self.evidence[t, s] + new
                    told.append(self.evidence[t, s])
                evidence[t, s] = told if self.mode == "causal" else [told[-1]] * len(rows)
            scores = torch.tensor([[DOUBT] * len(rows), *evidence.values()], dtype=torch.float64)
            weights = scores.softmax(0)
            weights = torch.where(weights > NEGLIGIBLE, weights, 0)[1:]
            out[rows] *= 1 - weights.sum(0)[:, None]
            for weight, own in zip(weights, found.values(), strict=True):
                out[rows] += weight[:, None] * own
        return out


def told(labels, strength=2.0, classes=CLASSES, seed=0):
    """Logits of a weak classifier."""
    g = torch.Generator().manual_seed(seed)
    right = torch.nn.functional.one_hot(torch.as_tensor(labels), classes)
    return strength * right + 1.5 * torch.randn(len(labels), classes, generator=g)


def runs(count, length=15, classes=CLASSES, seed=0):
    """Labels of which each stays for a while."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(classes, (count,), generator=g).repeat_interleave(length)


def accuracy(logits, labels):
    return float((logits.argmax(1) == labels).float().mean())


def after(sticky, logits, streams=None, sharpness=None):
    answer, state = sticky.answer(logits, streams, sharpness)
    sticky.commit(state)
    return answer


@pytest.mark.parametrize(("t", "s"), GRID)
def test_each_filter_is_a_hidden_markov_model(t, s):
    log_p = (told(runs(3)) / t).log_softmax(1)
    q = torch.full((CLASSES,), 0.1).index_fill(0, torch.tensor([2]), 1 - 0.1 * (CLASSES - 1))
    start = torch.softmax(torch.arange(CLASSES).float(), 0)
    likelihood = (log_p.exp() / q).numpy()
    filtered, smoothed, log_z = walk([*(log_p.exp() / q).double()], q.double().expand(45, CLASSES), s, start.double())
    for smooth, expected in ((False, filtered), (True, smoothed)):
        stay = np.array([[s]], np.float32)
        ours = filtered_beliefs(likelihood[None], q[None, None].numpy(), start[None].numpy(), stay, smooth)
        assert torch.allclose(torch.from_numpy(ours[:, 0]).double(), expected, atol=1e-4)
    starts = start.expand(len(TEMPERATURES), len(STAYS), CLASSES).numpy()
    own = [float(x) for x in STAYS].index(s)
    belief, z = forward_filters(likelihood[None].repeat(3, 0), q.expand(3, 1, CLASSES).numpy(), starts)
    assert torch.allclose(torch.from_numpy(belief[1, own]).double(), filtered[-1], atol=1e-4)
    assert torch.allclose(torch.from_numpy(z[:, 1, own]).log(), torch.tensor(log_z), atol=1e-4)


@pytest.mark.parametrize("mode", ["smooth", "causal"])
@pytest.mark.parametrize("streams", [1, 3])
def test_the_answers_are_their_mean_weighed_by_what_they_have_foretold(mode, streams):
    sticky, plain = Sticky(Settings(filter=mode)), Plain(mode)
    changed = 0.0
    for seed in range(5):
        labels = runs(streams, 12, seed=seed).view(streams, 12).T.flatten()  # interleaved
        logits, names = told(labels, seed=seed), [f"camera {i % streams}" for i in range(len(labels))]
        sharpness = np.random.default_rng(seed).normal(scale=2, size=len(labels)).astype(np.float32)
        answer = after(sticky, logits, names, sharpness).double().softmax(1)
        assert torch.allclose(answer, plain.answer(logits, names, sharpness.tolist()), atol=1e-4)
        changed = max(changed, float((answer - logits.double().softmax(1)).abs().max()))
    assert changed > 0.3  # the comparison is about something


def test_causal_answers_know_only_what_came_before():
    labels = runs(8)
    logits = told(labels)
    other = torch.cat([logits[:70], told(labels, seed=5)[70:]])
    answers = {}
    for mode in ("causal", "smooth"):
        answers[mode] = []
        for last in (logits, other):
            sticky = Sticky(Settings(filter=mode))
            after(sticky, logits[:60])
            answers[mode].append(sticky.answer(last[60:])[0])
    assert torch.equal(answers["causal"][0][:10], answers["causal"][1][:10])
    assert not torch.equal(answers["smooth"][0][:10], answers["smooth"][1][:10])
    assert not torch.equal(answers["causal"][0][10:], answers["causal"][1][10:])
    one_by_one = Sticky(Settings(filter="causal"))
    after(one_by_one, logits[:60])
    alone = torch.cat([after(one_by_one, x) for x in logits[60:].split(1)])
    assert torch.allclose(answers["causal"][0], alone, atol=1e-4)


@pytest.mark.parametrize("mode", ["smooth", "causal"])
@pytest.mark.parametrize("strength", [0.0, 2.0, 8.0])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_a_shuffled_stream_is_left_alone(mode, strength, classes):
    sticky, g = Sticky(Settings(filter=mode)), torch.Generator().manual_seed(1)
    for seed in range(6):
        logits = told(torch.randint(classes, (50,), generator=g), strength, classes, seed)
        answer = after(sticky, logits)
        within = 1e-3 if mode == "smooth" else 3e-3  # which weighs anew at each sample: chance has a say more often
        assert torch.allclose(answer.softmax(1), logits.softmax(1), atol=within, rtol=0)
        assert torch.equal(answer.argmax(1), logits.argmax(1))
    assert sticky.stays < 0.01


@pytest.mark.parametrize("mode", ["smooth", "causal"])
@pytest.mark.parametrize("size", [1, 16])
def test_a_model_that_fails_and_nearly_always_says_the_same_is_left_alone(mode, size):
    sticky, g = Sticky(Settings(filter=mode)), torch.Generator().manual_seed(1)
    labels = torch.where(torch.rand(192, generator=g) < 0.8, 3, torch.randint(100, (192,), generator=g))
    logits = told(labels, 9.0, 100)
    answers = torch.cat([after(sticky, part) for part in logits.split(size)])
    assert accuracy(answers, labels) >= accuracy(logits, labels) - 0.01


@pytest.mark.parametrize(("mode", "gain"), [("smooth", 0.2), ("causal", 0.12)])
@pytest.mark.parametrize("size", [1, 10, 64])
def test_where_classes_stay_answers_get_better(mode, gain, size):
    labels = runs(40)
    logits, sticky = told(labels), Sticky(Settings(filter=mode))
    answers = torch.cat([after(sticky, part) for part in logits.split(size)])
    if size == 1:
        gain = 0.12  # nothing is behind a single sample
    assert accuracy(answers, labels) > accuracy(logits, labels) + gain
    assert sticky.stays > 0.7


def test_streams_are_told_apart():
    """Three cameras whose images come in turn: as one stream there is no order in them."""
    labels = runs(60, 10).view(3, 200).T.flatten()
    logits = told(labels)
    apart, together = Sticky(Settings()), Sticky(Settings())
    cameras = [i % 3 for i in range(60)]
    answers = [
        torch.cat([after(each, part, names) for part in logits.split(60)])
        for each, names in ((apart, cameras), (together, None))
    ]
    assert accuracy(answers[0], labels) > accuracy(logits, labels) + 0.15
    assert accuracy(answers[0], labels) > accuracy(answers[1], labels) + 0.1


def by_stream(sticky):
    """What it believes of each stream, the one used last at the end, and the mean answer."""
    saved = sticky.remembered()
    mean = saved["answers"].sum(1) / saved["levels"].sum()
    return dict(zip(saved["streams"], saved["beliefs"], strict=True)), mean


def test_the_belief_in_a_stream_does_not_depend_on_the_others_between():
    labels, names = runs(6, 10), ["a"] * 30 + ["b"] * 30
    logits, order = told(labels), [i // 2 + 30 * (i % 2) for i in range(60)]
    in_turn, mixed = Sticky(Settings()), Sticky(Settings())
    after(in_turn, logits, names)
    after(mixed, logits[order], [names[i] for i in order])
    (first, second), means = zip(*(by_stream(one) for one in (in_turn, mixed)), strict=True)
    assert first.keys() == second.keys() == {"a", "b"}
    for name, rows in (("a", slice(0, 30)), ("b", slice(30, 60))):
        belief, other = first[name], second[name]
        assert torch.allclose(belief, other, atol=1e-5)
        for t, temperature in enumerate(TEMPERATURES):
            q = (60 * means[0][t].double() + PRIOR / CLASSES) / (60 + PRIOR)
            p = (logits[rows].double() / float(temperature)).softmax(1)
            for s, stay in enumerate(STAYS):
                alone = walk([*(p / q)], q.expand(30, CLASSES), float(stay), q)[0][-1]
                assert torch.allclose(belief[t, s].double(), alone, atol=1e-4)


def test_among_many_classes_what_was_not_seen_yet_is_not_taken_for_likely():
    labels = runs(4, 16, 900)
    p = torch.full((64, 1000), 1e-6)
    everywhere, unclear = torch.arange(64), torch.arange(64).view(4, 16)[:, 5:7].flatten()
    p[everywhere, labels], p[everywhere, labels + 1] = 0.9, 0.005  # a class that looks alike, and is never the answer
    p[unclear] = 1e-6
    for offset, share in ((0, 0.01), (1, 0.2), (2, 0.5)):
        p[unclear, labels[unclear] + offset] = share
    assert accuracy(p, labels) == 0.875
    assert accuracy(after(Sticky(Settings(filter="smooth")), p.log()), labels) == 1.0


def test_the_streams_not_seen_for_longest_are_forgotten():
    sticky = Sticky(Settings())
    after(sticky, told(runs(1, 2)), ["first", "second"])
    for start in range(0, STREAMS - 1, 5):
        after(sticky, told(runs(1, 6)), ["first", *range(start, start + 5)])
    beliefs, _ = by_stream(sticky)
    assert len(beliefs) == STREAMS
    assert "first" in beliefs
    assert "second" not in beliefs
    assert next(reversed(beliefs)) == start + 4


@pytest.mark.parametrize("mode", ["smooth", "causal"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_is_passed_on_and_ignored(mode, value):
    sticky, clean = Sticky(Settings(filter=mode)), Sticky(Settings(filter=mode))
    logits = told(runs(10))
    for part in logits.split(30):
        bad = torch.cat([part[:10], torch.full((1, CLASSES), value), part[10:]])
        answer, expected = after(sticky, bad), after(clean, part)
        assert torch.equal(torch.cat([answer[:10], answer[11:]]), expected)
        assert torch.equal(answer[10], bad[10]) or value != value
    assert_same_state(sticky.remembered(), clean.remembered())
    before = sticky.remembered()
    answer = after(sticky, torch.full((3, CLASSES), float("nan")))
    assert answer.isnan().all()
    assert_same_state(sticky.remembered(), before)


def test_a_class_that_is_masked_stays_so():
    labels = runs(20)
    sticky, mask = Sticky(Settings()), torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    for part in (told(labels) + mask).split(50):
        answer = after(sticky, part)
    assert (answer[:, 4] == -torch.inf).all()
    assert answer[:, :4].isfinite().all()
    assert sticky.stays > 0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_answers_keep_their_type(dtype):
    labels = runs(20)
    sticky, exact = Sticky(Settings()), Sticky(Settings())
    for part in told(labels).split(50):
        answer, expected = after(sticky, part.to(dtype)), after(exact, part)
    assert answer.dtype == dtype
    assert torch.allclose(answer.float(), expected, rtol=0.1, atol=0.1)


def test_nothing_changes_before_it_is_committed():
    sticky = Sticky(Settings())
    after(sticky, told(runs(4)), ["a", "b"] * 30)
    before, logits = sticky.remembered(), told(runs(4, seed=1))
    first = sticky.answer(logits, ["a", "c"] * 30)[0]
    assert torch.equal(first, sticky.answer(logits, ["a", "c"] * 30)[0])
    assert_same_state(sticky.remembered(), before)


@pytest.mark.parametrize("mode", ["smooth", "causal"])
def test_what_is_remembered_goes_on_bit_for_bit(mode):
    sticky, other = Sticky(Settings(filter=mode)), Sticky(Settings(filter=mode))
    for seed in range(3):
        after(sticky, told(runs(4, seed=seed)), ["a", 7] * 30)
    memory = saved_and_loaded(sticky.remembered())
    assert other.fits(memory, CLASSES)
    assert not other.fits(memory, CLASSES + 1)
    assert not other.fits({**memory, "streams": ["a"]}, CLASSES)
    other.recall(memory)
    logits = told(runs(4, seed=5))
    for names in (["a", 7] * 30, [7, "c"] * 30):
        assert torch.equal(after(other, logits, names), after(sticky, logits, names))
    assert other.stays == sticky.stays
    other.recall({})
    assert other.remembered() == {}


def dependent(count=12, size=20):
    labels = runs(count * size // 20, 20, 10)
    return bright(labels, seed=3).split(size), labels


def unsure(method):
    net = channel_net()
    with torch.no_grad():
        net[-1].weight.mul_(0.2)
    return delta_tta.adapt(net, method)


def test_an_adapter_filters_its_answers():
    images, labels = dependent()
    noise = 0.9 * torch.randn(len(labels), 10, 1, 1, generator=torch.Generator().manual_seed(0))
    noisy = [x + own for x, own in zip(images, noise.split(20), strict=True)]
    plain, sticky = unsure("source"), unsure("source+sticky")
    answers = [torch.cat([model(x) for x in noisy]) for model in (plain, sticky)]
    assert accuracy(answers[1], labels) > accuracy(answers[0], labels) + 0.1
    assert sticky.signals.stays > 0.5
    assert sticky.signals.share is plain.signals.stays is None


@pytest.mark.parametrize("method", ["source+sticky", "tent+delta+sticky", "tent+anchored+dot+sticky"])
def test_predict_filters_and_changes_nothing(method):
    images, _ = dependent(6)
    model = delta_tta.adapt(channel_net(), method)
    for x in images[:4]:
        model(x, stream="door")
    before = saved_and_loaded(model.state_dict())
    answers = [model.predict(images[4], stream=name) for name in ("door", "door", "yard")]
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])
    assert_same_state(model.state_dict(), before)


@pytest.mark.parametrize("settings", [{}, {"update": "slow", "length": 500}, {"background": True}])
def test_an_adapters_state_holds_its_streams(settings):
    images, _ = dependent(8)
    first, second = (delta_tta.adapt(channel_net(), "tent+delta+sticky", **settings) for _ in range(2))
    for i, x in enumerate(images[:5]):
        first(x, stream=f"camera {i % 2}")
    second.load_state_dict(saved_and_loaded(first.state_dict()))
    assert second.signals.stays == first.signals.stays
    for x in images[5:]:
        assert torch.equal(second(x, stream="camera 1"), first(x, stream="camera 1"))
    assert_same_state(second.state_dict(), first.state_dict())
    first.reset()
    assert first.state_dict()["filter"] == {}
    assert first.signals.stays in (None, 0.0)


def test_a_damaged_filter_is_refused():
    model, other = (fitting(conv_net(), method) for method in ("source+sticky", "source"))
    model(batches(1)[0])
    state = model.state_dict()
    for wrong in (
        {"answers": state["filter"]["answers"]},
        {**state["filter"], "answers": torch.ones(3, 4)},
        {"answers": 1},
    ):
        damaged = delta_tta.engine.state.seal({**state, "filter": wrong})
        with pytest.raises(StateError, match="damaged"):
            model.load_state_dict(damaged)
    with pytest.raises(StateError, match="damaged"):
        other.load_state_dict(delta_tta.engine.state.seal({**other.state_dict(), "filter": state["filter"]}))


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        (["a", "b"], "one `stream` for each of 12 samples, but got 2"),
        (torch.arange(3), "one `stream` for each of 12 samples, but got 3"),
        (2.5, "a text or an integer"),
        ([None] * 12, "a text or an integer"),
        ([["a"]] * 12, "a text or an integer"),
    ],
)
def test_what_names_no_stream_is_refused_and_nothing_counts(stream, words):
    model = delta_tta.adapt(conv_net(), "tent+anchored+dot+sticky", update="every")
    first, second = batches(2)
    model(first)
    before = saved_and_loaded(model.state_dict())
    for call in (model, model.predict):
        with pytest.raises(InputError, match=words):
            call(second, stream=stream)
    assert_same_state(model.state_dict(), before)


def test_names_may_come_as_a_tensor_and_others_have_no_use_for_them():
    ids = torch.arange(12) % 3
    a, b = (delta_tta.adapt(conv_net(), "source+sticky") for _ in range(2))
    for x in batches(4):
        assert torch.equal(a(x, stream=ids), b(x, ids.tolist()))
    assert set(a.state_dict()["filter"]["streams"]) == {0, 1, 2}
    plain = delta_tta.adapt(conv_net(), "tent")
    assert plain(x, stream="a").isfinite().all()


def test_what_is_not_learnt_from_does_not_enter_the_filter():
    model = delta_tta.adapt(conv_net(), "tent+anchored+dot+sticky", update="every")
    first, second = batches(2)
    model(first)
    before = saved_and_loaded(model.state_dict()["filter"])
    for garbage in (1e5 * second, second * float("nan"), 0 * second):
        assert model(garbage).isfinite().all()
    assert model.signals.refused == 3
    assert_same_state(model.state_dict()["filter"], before)
    model(second)
    assert model.state_dict()["filter"]["levels"].sum() > before["levels"].sum()


def test_episodic_forgets_the_streams_too():
    images, _ = dependent(6)
    model = delta_tta.adapt(channel_net(), "source+sticky", episodic=True)
    for x in images:
        assert torch.equal(model(x), delta_tta.adapt(channel_net(), "source+sticky")(x))


def test_a_plain_model_holds_all_but_the_filter():
    x = batches(1, size=8)[0]
    plain, filtered = (fitting(conv_net(), method) for method in ("tema", "tema+sticky"))
    plain(x), filtered(x)
    assert torch.equal(plain.unload(keep=True)(x), filtered.unload(keep=True)(x))


def test_what_is_recommended():
    assert str(delta_tta.adapt(conv_net()).recipe) == RECOMMENDED == "anchored+mirror+sticky"
    for norm in (group_norm, torch.nn.Identity, lambda c: torch.nn.BatchNorm2d(c, track_running_stats=False)):
        assert str(delta_tta.adapt(conv_net(norm)).recipe) == WITHOUT_BATCH_NORM == "source+mirror+sticky"
        assert delta_tta.adapt(conv_net(norm)).settings.guard == "on"
