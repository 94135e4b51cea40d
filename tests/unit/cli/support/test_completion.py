"""What the shell offers on Tab."""

import pytest

from command import run
from delta_tta import recipe
from delta_tta.streams import StreamSpec


def typed(line):
    """Return the environment in which bash asks what can follow."""
    words = line.split(" ")
    return {"_DELTA_TTA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}


@pytest.mark.parametrize(
    ("line", "offered", "others"),
    [
        ("delta-tta re", ["reproduce", "report"], True),
        ("delta-tta compare ent", ["ent-w"], True),
        ("delta-tta compare source tent", ["tent", "tent+delta", "tent+dot", "tent+tbr"], False),
        ("delta-tta run -m tent+delta+", ["tent+delta+lame"], False),
        ("delta-tta run --scenario DS", ["DS+CB,rho=0.1", "DS+CI,rho=0.5,pi=0.05"], True),
        ("delta-tta run -c fa", ["families"], True),
        ("delta-tta demo --corruption g", ["gaussian_noise", "glass_blur", "gaussian_blur"], True),
        ("delta-tta corrupt out --only al", [], True),
        ("delta-tta reproduce table-2", ["table-2", "table-20", "table-25"], False),
        ("delta-tta reproduce --on ima", ["imagenet-c", "imagenet-r"], True),
        ("delta-tta run --set alph", ["alpha="], False),
        ("delta-tta compare tent --model torch", ["torchvision:"], True),
        ("delta-tta train images --weights r", ["random", "resnet20-cifar10", "resnet20-cifar100"], True),
        ("delta-tta --quiet run --engine r", ["ray"], True),
    ],
)
def test_the_shell_completes_names(line, offered, others):
    found = run(**typed(line)).stdout.split()
    assert {*offered} == {*found} if others else {*offered} <= {*found}
    assert all(word.startswith(line.split(" ")[-1]) for word in found)


def test_what_the_shell_offers_can_be_used():
    methods = run(**typed("delta-tta compare tent")).stdout.split()
    assert {recipe.parse(method).objective for method in methods} == {"tent"}
    scenarios = run(**typed("delta-tta run --scenario ")).stdout.split()
    assert len({StreamSpec.parse(scenario) for scenario in scenarios}) == len(scenarios) >= 4
