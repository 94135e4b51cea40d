"""The command, run in this process."""

from typer.testing import CliRunner

from delta_tta.cli.commands import app


def run(*arguments, code=0, **environment):
    """Run `delta-tta` with these arguments; the exit code must be as expected."""
    result = CliRunner(env={"COLUMNS": "160", **environment}).invoke(
        app, list(map(str, arguments)), prog_name="delta-tta"
    )
    assert result.exit_code == code, result.output
    return result
