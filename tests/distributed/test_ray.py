"""The Ray engine on a real cluster of several nodes on this machine; one of them is killed in the middle."""

import subprocess
import sys
import time

import pytest

from delta_tta.experiments import Store
from delta_tta.experiments.lab import Lab
from delta_tta.experiments.local_engine import Inline
from delta_tta.experiments.runner import Plan, run
from laboratory import cell, place

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'delta-tta[scale]'")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.nodes = [made.add_node(num_cpus=1), made.add_node(num_cpus=1)]
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def same(one, other):
    """Whether two stores hold the same results, but for the time they took."""
    first, second = (
        {key: (result.trace, {**result.as_dict(), "seconds": 0}) for key, _, result in store.results()}
        for store in (one, other)
    )
    assert first.keys() == second.keys()
    for key in first:
        assert first[key][1] == second[key][1]
        assert one.trace(key).predicted.tolist() == other.trace(key).predicted.tolist()


def test_a_node_dies_and_every_cell_is_done_once_as_the_local_engine_does_it(cluster, tmp_path):
    from delta_tta.experiments.ray_engine import RayEngine

    where = place(tmp_path)
    cells = [
        cell(where, method, seed=seed, corruptions=(corruption,))
        for corruption in ("fog", "contrast")
        for seed in (1, 2)
        for method in ("source", "bn", "tent+delta", "eata")
    ]
    cells.append(cell(where, "tent", corruptions=("fog", "contrast"), order="continual"))
    plan = Plan.of(cells, Lab(tmp_path / "cache"))
    (tmp_path / "slow").touch()  # a batch takes half a second: time enough to die in a cell
    killed = []

    def on_progress(progress):
        if progress.done >= 2 and not killed:
            killed.append(cluster.nodes[1])
            cluster.remove_node(cluster.nodes[1], allow_graceful=False)
        if killed:
            (tmp_path / "slow").unlink(missing_ok=True)

    with Store(tmp_path / "ray.db") as store, Store(tmp_path / "local.db") as local:
        engine = RayEngine(tmp_path / "ray cache", cpus=1)
        assert engine.slots == 2
        progress = run(plan, store, engine, on_progress)
        assert not progress.failed
        assert progress.done == len(store) == len(plan.cells)
        assert killed
        run(plan, local, Inline(tmp_path / "cache"))
        same(store, local)
        assert ray.is_initialized(), "a cluster that was there before is left alone"


def test_a_cell_that_fails_says_why_and_the_others_go_on(cluster, tmp_path):
    from delta_tta.experiments.ray_engine import RayEngine

    where = place(tmp_path)
    cells = [cell(where, "bn"), cell(where, "lame", settings=(("features", "nowhere"),))]
    plan = Plan.of(cells, Lab(tmp_path / "cache"))
    with Store(tmp_path / "s.db") as store:
        progress = run(plan, store, RayEngine(tmp_path / "cache", cpus=1))
    assert progress.done == 1
    assert "nowhere" in next(iter(progress.failed.values()))


def test_more_than_the_cluster_has_is_refused(cluster, tmp_path):
    from delta_tta.errors import SettingError
    from delta_tta.experiments.ray_engine import RayEngine

    with pytest.raises(SettingError, match="Expected a cluster with 1 CPUs and 1 GPUs for a cell"):
        RayEngine(tmp_path, gpus=1)


def test_images_are_put_into_the_object_store_once(cluster, tmp_path):
    from delta_tta.experiments.ray_engine import RayEngine

    where = place(tmp_path)
    engine = RayEngine(tmp_path / "cache", cpus=1)
    cells = [cell(where, method) for method in ("source", "bn", "tema")]
    plan = Plan.of(cells, Lab(tmp_path / "cache"))
    with Store(tmp_path / "s.db") as store:
        start = time.monotonic()
        run(plan, store, engine)
        assert time.monotonic() - start < 60
    assert len(engine._sets) == 2, "the clean images, and those of the corruption"
    assert len(engine._models) == 1


def test_without_ray_the_engine_says_what_to_install():
    code = (
        "import sys; sys.modules['ray'] = None; from pathlib import Path\n"
        "from delta_tta.experiments.ray_engine import RayEngine\n"
        "try: RayEngine(Path('.'))\n"
        "except ImportError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'delta-tta[scale]'" in said
