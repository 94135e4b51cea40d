"""A small network as the recommended method takes it, exported once."""

import pytest

from delta_tta.edge import export
from nets import batches, conv_net


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Its file."""
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    export(conv_net(), batches(1)[0], path)
    return path
