"""``attsvm`` itself: which commands it has, and their help."""

import re

import pytest
from typer.testing import CliRunner

from attsvm.cli.main import COMMANDS, app, load_command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_its_summary_in_both_helps(name):
    runner = CliRunner()
    listed = " ".join(re.sub(r"[│\s]+", " ", runner.invoke(app, ["--help"]).output).split())
    assert COMMANDS[name] in listed
    command = load_command(name)
    assert command.name == name
    assert command.help.startswith(COMMANDS[name])
    assert f"attsvm {name} " in command.help.partition("Examples:")[2]
