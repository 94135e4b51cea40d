"""`delta-tta corrupt`: a corrupted set of the embedded images."""

from command import run


def test_corrupt_makes_a_set_of_the_embedded_images(tmp_path):
    out = tmp_path / "out"
    shown = run("corrupt", str(out), "--only", "contrast", "--workers", "1")
    assert "2000 images × 1 corruptions × 5 severities (cifar constants)" in shown.stdout
    assert {p.name for p in out.iterdir()} == {"contrast.npy", "labels.npy", "corruptions.json"}
