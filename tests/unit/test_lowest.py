"""The lowest versions that are tested are the lowest that are allowed, and every file states the same version."""

import re
from pathlib import Path

import pytest

import delta_tta

ROOT = Path(__file__).parents[2]
RANGE = re.compile(r'"([\w-]+)>=([\d.]+)[^"]*"')


def ranges(*lists):
    text = (ROOT / "pyproject.toml").read_text()
    found = [re.search(rf"^{name} = \[(.*?)\]$", text, re.M | re.S)[1] for name in lists]
    return dict(RANGE.findall(" ".join(found)))


@pytest.mark.parametrize(("name", "lowest"), ranges("dependencies", "data", "models", "cli").items())
def test_the_lowest_version_allowed_is_the_one_tested(name, lowest):
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-lowest.txt").read_text(), re.M))
    assert f"{pins[name]}.".startswith(f"{lowest}.")


def test_the_version_is_the_same_everywhere():
    version = re.escape(delta_tta.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert re.search(rf"^## \[{version}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M)
