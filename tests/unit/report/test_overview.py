"""The overview of all runs of a store."""

import pytest

from delta_tta.experiments import Cell, Place
from delta_tta.paper import benchmark as benchmark
from delta_tta.report.overview import overview
from delta_tta.streams import StreamSpec
from laboratory import result

IS_CB = StreamSpec("IS+CB")


def test_an_overview_does_not_mix_two_folders(tmp_path):
    one, other = (Place("folder", str(tmp_path / name), "resnet20", "w.pt") for name in "ab")
    runs = [(Cell(one, "tent", IS_CB), result(0.2)), (Cell(other, "tent", IS_CB), result(0.8))]
    means = [n.mean for table in overview(runs) for row in table.rows for n in row.numbers if n]
    assert sorted(means) == pytest.approx([20, 80])
