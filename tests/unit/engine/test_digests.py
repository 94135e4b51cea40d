"""The architecture of a model and the checksum of a state."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import delta_tta
from all_methods import METHODS, make, stream
from delta_tta.engine.digests import architecture, checksum
from delta_tta.engine.state import seal
from nets import SharedNorm, batches, conv_net, flat_net, group_norm, volume_net


def adapter_with_state(**settings):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", **settings)
    for x in batches(3):
        adapter(x)
    return adapter, adapter.state_dict()


def test_the_checksum_is_of_what_a_state_says_not_of_how_it_is_kept():
    adapter, state = adapter_with_state(update="slow", length=64)
    turned = {key: state[key] for key in reversed(state)}
    turned["cache"] = turned["cache"].to(memory_format=torch.channels_last)
    adapter.load_state_dict(turned)
    assert seal(turned)["checksum"] == state["checksum"]
    values = [None, 0, 0.0, False, "", [], {}, "0", [0], [[0]], {"0": 0}, torch.zeros(1), torch.zeros(1, 1)]
    values += [torch.zeros(()), torch.zeros(0), torch.zeros(1).bfloat16(), torch.zeros(2).half(), {"": ["", ""]}]
    values += [{"": [""]}, {"a": {"b": 1}, "c": 2}, {"a": {"b": 1, "c": 2}}, torch.ones(1, dtype=torch.bool)]
    assert len({checksum({"x": value}) for value in values}) == len(values)


@pytest.mark.parametrize("method", METHODS)
def test_the_architecture_is_that_of_the_model_as_it_was_given(method):
    net = conv_net()
    given = architecture(net)
    adapter = make(method, net=net)
    assert adapter.state_dict()["model"] == given
    for x in stream(2):
        adapter(x)
    assert adapter.state_dict()["model"] == given
    assert copy.deepcopy(adapter).double().state_dict()["model"] == given
    assert architecture(adapter.unload()) == given


def test_the_architecture_knows_neither_values_nor_types_nor_modes():
    given = architecture(conv_net())
    assert given.startswith("Sequential, 11 modules, 1,501 parameters, ")
    assert architecture(conv_net(seed=1).double().eval().requires_grad_(False)) == given
    assert architecture(conv_net().to("meta")) == given
    code = "import nets, delta_tta.engine.digests as d; print(d.architecture(nets.conv_net(seed=5).bfloat16()))"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, env=os.environ | path
    )
    assert (there.stdout.strip(), there.stderr) == (given, "")


class Cached(nn.Module):
    """Keeps a table as long as its last input, and does not save it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(1), persistent=False)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        self.table = torch.arange(x.shape[-1])
        return x * self.scale


def test_the_architecture_knows_no_buffer_that_comes_and_goes():
    net = nn.Sequential(Cached(), *conv_net())
    given = architecture(net)
    net(batches(1)[0])
    assert architecture(net) == given
    net[0].scale = torch.ones(2)
    assert architecture(net) != given


def test_every_net_of_the_tests_has_an_architecture_of_its_own():
    nets = [conv_net(), conv_net(group_norm), flat_net(), volume_net(), SharedNorm()]
    twice = SharedNorm()
    twice.again = nn.BatchNorm1d(8)
    assert len({architecture(net) for net in [*nets, twice]}) == 6
