"""`delta-tta compare`: a table of methods."""

from command import run


def test_compare_prints_a_table_and_writes_markdown(tmp_path):
    shown = run(
        "compare", "source", "bn", "--scenario", "DS+CB (rho=0.5)", "--corruption", "fog", "-s", "3", "-b", "200",
        "--workers", "0",  # several may finish in any order
        "--markdown", str(tmp_path / "table.md"),
    )  # fmt: skip
    assert "DS+CB (ρ=0.5)" in shown.stdout
    assert "fog 3 (cifar constants)" in shown.stdout
    assert "2/2 bn on fog 3, DS+CB (ρ=0.5), seed 2020, B=200" in shown.stderr, "progress, where there is no terminal"
    assert (tmp_path / "table.md").read_text().startswith("| | DS+CB (ρ=0.5) |")
