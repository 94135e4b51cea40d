"""`delta-tta export`: a model that adapts without torch."""

import json

import numpy as np
import pytest

from command import run


@pytest.mark.slow
def test_export_writes_a_model_that_adapts(tmp_path):
    pytest.importorskip("onnxscript")
    from delta_tta.edge import EdgeModel

    out = tmp_path / "model.onnx"
    shown = json.loads(run("export", "resnet20-cifar10", str(out), "--method", "anchored", "--json").stdout)
    assert (shown["method"], shown["bytes"]) == ("anchored", out.stat().st_size)
    assert EdgeModel(out)(np.zeros((9, 3, 32, 32), np.float32)).shape == (9, 10)
