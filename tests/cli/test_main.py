"""``attsvm`` itself: what it costs to ask for help, and which commands it has."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from attsvm.cli.main import COMMANDS, app, load_command

HEAVY = ("jax", "jaxlib", "numpy", "scipy", "optax", "sklearn", "matplotlib", "torch", "transformers")


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy_and_are_fast(option):
    code = (
        "import sys\nsys.argv = ['attsvm', sys.argv[1]]\n"
        "from attsvm.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code\n"
        f"print('imported:', *[name for name in {HEAVY} if name in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code, option], capture_output=True, text=True, check=True)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
    assert done.stdout.splitlines()[-1].strip() == "imported:"
    # the best of three: a loaded machine makes a run slower, never faster
    assert min(seconds) < 0.4


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_its_summary_in_both_helps(name):
    runner = CliRunner()
    listed = " ".join(re.sub(r"[│\s]+", " ", runner.invoke(app, ["--help"]).output).split())
    assert COMMANDS[name] in listed
    command = load_command(name)
    assert command.name == name
    assert command.help.startswith(COMMANDS[name])
    assert f"attsvm {name} " in command.help.partition("Examples:")[2]
