"""An adapter as a part of a larger module: what that saves and loads."""

import pytest
import torch

import delta_tta
from delta_tta.engine.state import seal
from nets import batches, conv_net


def adapter_with_state(**settings):
    adapter = delta_tta.adapt(conv_net(), "tent+delta", "cifar10-c", **settings)
    for x in batches(3):
        adapter(x)
    return adapter, adapter.state_dict()


def test_a_module_around_the_adapter_saves_and_loads_its_state():
    adapter, state = adapter_with_state()
    around = torch.nn.ModuleDict({"inner": adapter, "other": torch.nn.Linear(2, 2)})
    whole = around.state_dict()
    assert whole["inner.adaptation"]["samples"] == state["samples"]
    expected = adapter.predict(batches(1)[0])
    adapter.reset()
    around.load_state_dict(whole)
    assert torch.equal(adapter.predict(batches(1)[0]), expected)
    assert adapter.signals.step == 3
    with pytest.raises(RuntimeError, match=r"inner\.adaptation"):
        around.load_state_dict({k: v for k, v in whole.items() if k != "inner.adaptation"})
    whole["inner.adaptation"] = seal({**whole["inner.adaptation"], "method": "pl"})
    with pytest.raises(RuntimeError, match="saved by method 'pl'"):
        around.load_state_dict(whole)
