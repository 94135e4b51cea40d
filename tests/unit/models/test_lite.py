"""EfficientNet-Lite0 for small images, against its definition."""

import torch
import torch.nn.functional as F

from delta_tta.models.lite import CifarLite
from nets import randomise_statistics


def normed(x, weights, name, eps=1e-5):
    take = (weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, *take, training=False, eps=eps)


def test_efficientnet_lite_computes_what_its_weights_say():
    torch.manual_seed(1)
    model = randomise_statistics(CifarLite(classes=7)).eval()
    w = model.state_dict()
    stages = ((1, 16, 3), (2, 24, 3), (2, 40, 5), (3, 80, 3), (3, 112, 5), (4, 192, 5))  # Tan & Le 2019, Table 1
    strides = {1: 2, 3: 2, 5: 2}  # by block: for 32×32 images only these halve the side

    def step(x, name, layer, **options):
        return normed(F.conv2d(x, w[f"{name}.{layer}.weight"], **options), w, f"{name}.{layer + 1}", eps=1e-3)

    x = torch.randn(2, 3, 32, 32)
    y, block = step(x, "stem", 0, padding=1).clamp(0, 6), 0
    for count_, channels, kernel in stages:
        for _ in range(count_):
            name, stride, z, layer = f"blocks.{block}.layers", strides.get(block, 1), y, 0
            if block:
                z, layer = step(z, name, 0).clamp(0, 6), 3
                assert z.shape[1] == 6 * y.shape[1]
            options = {"stride": stride, "padding": kernel // 2, "groups": z.shape[1]}
            z = step(step(z, name, layer, **options).clamp(0, 6), name, layer + 3)
            assert z.shape[1] == channels
            y, block = y + z if z.shape == y.shape else z, block + 1
    assert y.shape == (2, 192, 4, 4)
    torch.testing.assert_close(model(x), F.linear(y.mean((2, 3)), w["fc.weight"], w["fc.bias"]))
