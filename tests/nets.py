"""Small classifiers with every kind of norm layer, and streams to feed them."""

import torch
from torch import Tensor, nn

CLASSES = 5


def randomise_statistics(model: nn.Module) -> nn.Module:
    """Give every norm layer the γ, β and running statistics of a trained one."""
    for m in model.modules():
        if getattr(m, "running_mean", None) is not None:
            nn.init.normal_(m.running_mean, std=0.3)
            nn.init.uniform_(m.running_var, 0.5, 2.0)
        if isinstance(m, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm)) and m.weight is not None:
            nn.init.uniform_(m.weight, 0.5, 1.5)
            nn.init.normal_(m.bias, std=0.2)
    return model


def conv_net(norm=nn.BatchNorm2d, classes: int = CLASSES, seed: int = 0, sharp: float = 4.0) -> nn.Sequential:
    """Two convolutions with norm layers and dropout; sharp enough that some samples pass every threshold."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            norm(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
            norm(16),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )
        nn.init.normal_(net[-1].weight, std=sharp)
        randomise_statistics(net)
    return net


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(2, channels)


def flat_net(norm=nn.BatchNorm1d, seed: int = 0) -> nn.Sequential:
    """For inputs (B, 6)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(6, 12), norm(12), nn.ReLU(), nn.Linear(12, CLASSES))
        return randomise_statistics(net)


def volume_net(seed: int = 0) -> nn.Sequential:
    """For inputs (B, 2, D, H, W)."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv3d(2, 6, 3),
            nn.BatchNorm3d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(6, CLASSES),
        )
        return randomise_statistics(net)


class SharedNorm(nn.Module):
    """One batch norm object used twice in a forward pass, and registered in two places."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first = nn.Linear(6, 8)
            self.second = nn.Linear(8, 8)
            self.norm = nn.BatchNorm1d(8)
            self.again = self.norm
            self.head = nn.Linear(8, CLASSES)
            randomise_statistics(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        return self.head(self.again(self.second(x)))


def forget_statistics(net: nn.Module) -> nn.Module:
    """Let the batch norms be such as never kept running statistics."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.track_running_stats, m.running_mean, m.running_var, m.num_batches_tracked = False, None, None, None
    return net


def batches(count: int, size: int = 12, shape=(3, 8, 8), seed: int = 0, dtype=torch.float32) -> list[Tensor]:
    """A drifted stream: another mean and spread than the source statistics."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(size, *shape, generator=g, dtype=dtype) * 1.7 + 0.4 for _ in range(count)]


def with_blank(stream: list[Tensor], at: int) -> list[Tensor]:
    """Let all samples of one batch be the same, and unlike any other."""
    stream[at] = 3 * stream[at][:1].expand_as(stream[at])
    return stream


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {k: v.clone() for k, v in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def flatten(value, path=()) -> dict[tuple, Tensor]:
    """The tensors of a nested state, by their path."""
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flatten(item, (*path, key)).items()}
    return {path: value} if isinstance(value, torch.Tensor) else {}


def without_counts(state) -> dict[tuple, Tensor]:
    """What an adapter has learnt, by its path, without what its guard has counted."""
    return flatten({key: value for key, value in state.items() if key not in ("guard", "step", "samples", "checksum")})


def same_state(a, b) -> bool:
    """Whether two adapters have learnt the same."""
    a, b = a.state_dict(), b.state_dict()
    flat_a, flat_b = flatten(a), flatten(b)
    assert flat_a.keys() == flat_b.keys()
    return all(torch.equal(flat_a[k], flat_b[k]) for k in flat_a)


def channel_net(classes: int = 10) -> nn.Sequential:
    """Its class is the brightest channel; a batch of one class, normalised by itself, has none."""
    net = nn.Sequential(nn.BatchNorm2d(classes), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(classes, classes))
    net[0].running_mean.fill_(1 / classes)
    net[0].running_var.fill_((1 - 1 / classes) / classes + NOISE**2)
    nn.init.constant_(net[-1].bias, 0)
    with torch.no_grad():
        net[-1].weight.copy_(4 * torch.eye(classes))
    return net


NOISE = 0.3


def bright(labels, classes: int = 10, seed: int = 0) -> Tensor:
    """Images for it, one per label."""
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(labels), classes, 4, 4, generator=g)
    return nn.functional.one_hot(torch.as_tensor(labels), classes)[..., None, None] + NOISE * noise
