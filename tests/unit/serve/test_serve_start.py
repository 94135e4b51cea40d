"""What a service runs where nobody says which method."""

import pytest
from torch import nn

from delta_tta.serve.start import default_method
from nets import conv_net

pytest.importorskip("uvicorn")


@pytest.mark.parametrize(
    ("model", "method"),
    [(conv_net(), "anchored+sticky"), (nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), "source+sticky")],
)
def test_the_default_leaves_out_mirror_images(model, method):
    assert default_method(model) == method
