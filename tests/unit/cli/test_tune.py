"""`delta-tta tune`: every combination, and the best."""

import json

from command import run


def test_tune_tries_every_combination_and_names_the_best(tmp_path):
    asked = (
        "tune", "tent+delta", "--grid", "alpha=0.1,0.9", "--grid", "lr=0.001,1", "--images", "80", "-c", "fog",
        "-b", "16", "--scenario", "DS+CB,rho=0.1", "--workers", "0", "--store", str(tmp_path / "t.db"),
    )  # fmt: skip
    found = json.loads(run(*asked, "--json").stdout)
    assert found["scenarios"] == ["DS+CB (ρ=0.1)"]
    assert [trial["mean"] for trial in found["trials"]] == sorted((t["mean"] for t in found["trials"]), reverse=True)
    settings = [trial["settings"] for trial in found["trials"]]
    assert sorted((s["alpha"], s["lr"]) for s in settings) == [(0.1, 0.001), (0.1, 1), (0.9, 0.001), (0.9, 1)]
    assert found["trials"][0]["mean"] > found["trials"][-1]["mean"]
    best = ", ".join(f"{name}={value}" for name, value in settings[0].items())
    assert found["best"] == f'delta_tta.adapt(model, "tent+delta", "cifar10-c", {best})'
    shown = run(*asked, "--quiet").stdout.splitlines()  # from the store
    assert f"Best: {found['best']}" in shown[-2:]
    tied = sum(trial["tied"] for trial in found["trials"]) - 1
    assert (f"Not clearly: {tied} of the other 3" in shown[-1]) == (tied > 0)
    assert "name=value" in run("tune", "--grid", "alpha", code=2).stderr
