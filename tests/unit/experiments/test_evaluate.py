"""One method over one stream, and methods × streams."""

import copy
import json

import numpy as np
import pytest
import torch

import delta_tta
from delta_tta import data, models
from delta_tta import experiments as bench
from delta_tta.errors import InputError, ModelError
from delta_tta.streams import continual, stream
from nets import conv_net

HALF = data.Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.fixture
def images():
    draw = np.random.default_rng(0)
    return data.ArraySet("noise", draw.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) % 5, "abcde")


def named(net):
    return models.NamedModel(net.eval(), "tiny", "random", HALF, 8)


def unchanged(net, before):
    return all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_it_is_the_plain_loop(images):
    order = stream(images.labels, "DS+CB", rho=0.5)
    result = bench.evaluate(named(conv_net()), "tent+delta", images, order, 16, "cifar10-c", lr=1e-2)
    adapter = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", lr=1e-2)
    right = []
    for x, y in images.batches(order.indices, 16):
        right.append(adapter((x / 255 - 0.5) / 0.5).argmax(1) == y)
    plain = torch.cat(right)
    assert result.trace.correct.tolist() == plain.tolist()
    labels = torch.from_numpy(images.labels[order.indices])
    by_class = [plain[labels == c].double().mean() for c in range(5)]
    assert result.class_mean_accuracy == pytest.approx(float(torch.stack(by_class).mean()))
    assert result.accuracy == pytest.approx(float(plain.double().mean()))


def test_the_model_is_as_it_was_even_when_a_batch_fails(images):
    net = conv_net()
    before = copy.deepcopy(net.state_dict())
    order = stream(images.labels, "IS+CB")
    bench.evaluate(named(net), "tent+delta", images, order, 16)
    assert unchanged(net, before)

    def fail(size, metrics):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.evaluate(named(net), "tent+delta", images, order, 16, on_batch=fail)
    assert unchanged(net, before)
    delta_tta.adapt(net, "bn").unload()  # and it is free again


def test_a_result_says_all_that_determines_it(images):
    noisy = data.Corrupted(images, "fog", 2)
    order = stream(images.labels, "IS+CI", pi=0.5)
    result = bench.evaluate(named(conv_net()), "tent+tbr", noisy, order, 32, "cifar100-c", alpha=0.9)
    said = json.loads(json.dumps(result.as_dict()))
    assert said["stream"] == "IS+CI (π=0.5), seed 2020"
    assert said["digest"] == order.digest
    assert said["samples"] == len(order) == len(result.trace.correct)
    about = said["about"]
    assert about["settings"]["alpha"] == 0.9
    assert about["settings"]["lr"] == 1e-3
    assert about["corruption"] == "fog 2 (cifar constants)"
    assert about["batch size"] == 32
    assert "mean (0.5, 0.5, 0.5)" in about["normalisation"]
    assert about["versions"]["torch"] == torch.__version__


def test_only_the_outputs_of_the_datas_classes_count(images):
    net = conv_net(classes=12)
    images.outputs = (11, 3, 0, 7, 2)
    order = stream(images.labels, "natural")
    result = bench.evaluate(named(net), "source", images, order)
    x, y = next(images.batches(order.indices, 60))
    wanted = net((x / 255 - 0.5) / 0.5)[:, [11, 3, 0, 7, 2]].argmax(1) == y
    assert result.trace.correct.tolist() == wanted.tolist()


def test_a_model_of_exactly_the_datas_classes_is_taken_as_it_is(images):
    images.outputs = (11, 3, 0, 7, 2)
    order = stream(images.labels, "natural")
    result = bench.evaluate(named(conv_net(classes=5)), "source", images, order)
    images.outputs = None
    assert (
        result.trace.correct.tolist()
        == bench.evaluate(named(conv_net(classes=5)), "source", images, order).trace.correct.tolist()
    )
    images.outputs = (11, 3, 0, 7, 2)
    with pytest.raises(delta_tta.ModelError, match="needs output 11 of an ImageNet model, but tiny has 8 outputs"):
        bench.evaluate(named(conv_net(classes=8)), "source", images, order)


def test_data_whose_classes_the_model_names_otherwise_are_refused(images):
    net = conv_net(classes=5)
    order = stream(images.labels, "IS+CB")
    net.class_names = images.classes
    bench.evaluate(named(net), "source", images, order)
    first, second, *others = images.classes
    for names, words in (
        ((second, first, *others), f"class 0 is {second!r} to the model and {first!r} in the data"),
        ((*images.classes, "more"), "class 5 is 'more' to the model and nothing in the data"),
        (images.classes[:4], f"class 4 is nothing to the model and {images.classes[4]!r} in the data"),
    ):
        net.class_names = names
        with pytest.raises(ModelError, match=words):
            bench.evaluate(named(net), "source", images, order)
    images.classes = tuple("01234")  # numbers are no names
    for count in (5, 7):  # the last classes may not occur
        net = conv_net(classes=count)
        net.class_names = tuple("abcdefg"[:count])
        bench.evaluate(named(net), "source", images, order)
    net.class_names = tuple("abc")
    with pytest.raises(ModelError, match="may be their numbers, 0 to 2"):
        bench.evaluate(named(net), "source", images, order)


def test_eata_sees_source_images_in_random_order(images):
    order = stream(images.labels, "IS+CB")
    result = bench.evaluate(named(conv_net()), "eata", images, order, 16, source=images)
    assert result.method == "eata"
    assert "mean (0.5, 0.5, 0.5)" in result.about["normalisation"]


def test_a_continual_stream_resets_nothing_between_domains(images):
    domains = ["fog", "contrast"]
    sets = [data.Corrupted(images, name, 3) for name in domains]
    order = stream(images.labels, "IS+CB")
    whole = bench.evaluate(named(conv_net()), "tent+delta", data.Concat(sets), continual(order, domains), 20, lr=0.05)
    assert whole.samples == 120
    assert whole.stream == "continual over fog, contrast, each IS+CB, seed 2020"
    adapter = delta_tta.adapt(conv_net(), "tent+delta", lr=0.05)
    right = [adapter(HALF(x)).argmax(1) == y for one in sets for x, y in one.batches(order.indices, 20)]
    assert whole.trace.correct.tolist() == torch.cat(right).tolist()


def test_a_stream_of_another_set_is_refused(images):
    with pytest.raises(InputError, match="over 4 samples, but noise has 60"):
        bench.evaluate(named(conv_net()), "bn", images, stream([0, 1, 0, 1], "IS+CB"))
