"""What all commands have in common."""

import pytest
import typer

from delta_tta.cli.commands import COMMANDS, app


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_speaks_json(command):
    options = [option for one in typer.main.get_command(app).commands[command].params for option in one.opts]
    assert "--json" in options
