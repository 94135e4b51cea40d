"""On what an experiment runs: what cannot be is refused at once."""

import pytest

from delta_tta.errors import SettingError
from delta_tta.experiments import Place


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": "cifar10"}, "Unknown data 'cifar10'. Did you mean 'cifar'?"),
        ({"path": "somewhere"}, "no `path` for the embedded images"),
        ({"data": "folder"}, "Expected `path`, where the data 'folder' is"),
        ({"images": 0}, "`images` to be an integer of at least 1, but got 0"),
        ({"images": 10.5}, "but got 10.5"),
        ({"model": "net.py\0:make"}, "`model` to be a name or a path, but got 'net.py\\x00:make'"),
        ({"data": "cifar", "path": "a\0b"}, "`path` to be a name or a path"),
        ({"mean": (0.5, 0.5, 0.5)}, "both `mean` and `std`"),
        ({"mean": (0.5, 0.5), "std": (1, 1, 1)}, "three numbers as `mean`"),
        ({"mean": (0, 0, 0), "std": (1, 0, 1)}, "three above 0 as `std`, but got (0, 0, 0) and (1, 0, 1)"),
        ({"mean": (0, 0, float("nan")), "std": (1, 1, 1)}, "three numbers as `mean`"),
        ({"mean": 0.5, "std": 1}, "three numbers as `mean`"),
    ],
)
def test_a_place_that_cannot_be_is_refused_at_once(values, words):
    with pytest.raises(SettingError) as caught:
        Place(**values)
    assert words in str(caught.value)
