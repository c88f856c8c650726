"""``attsvm`` itself: which commands it has, and their help."""

import io
import json
import os
import re
import shlex
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import attsvm
from attsvm.cli.app import COMMANDS, PANELS, app, load_command
from attsvm.cli.exits import exit_status


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_its_summary_in_both_helps(name):
    runner = CliRunner()
    listed = " ".join(re.sub(r"[│\s]+", " ", runner.invoke(app, ["--help"]).output).split())
    assert COMMANDS[name] in listed
    command = load_command(name)
    assert command.name == name
    assert command.help.startswith(COMMANDS[name])
    lines = [line.partition(" > ")[0] for line in command.epilog.splitlines()]
    examples = [shlex.split(line) for line in lines if line.startswith("    attsvm")]
    assert examples
    words = name.split()
    for program, *arguments in examples:
        assert [program, *arguments[: len(words)]] == ["attsvm", *words]
        command.make_context(name, arguments[len(words) :])  # raises where an example does not parse


def test_the_help_groups_commands_and_shows_no_type_beside_flags():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    panels = re.split(r"╭─ ([\w ]+) ─+╮", shown)
    assert panels[1::2] == ["Options", *PANELS]
    for title, panel in zip(panels[3::2], panels[4::2], strict=True):
        assert re.findall(r"^│ ([a-z][\w -]*?)  ", panel, re.MULTILINE) == [*PANELS[title]]
    assert max(map(len, shown.splitlines())) == 80
    for name in ("", *COMMANDS):
        shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80"}).output
        assert "<bool>" not in shown
        if name:
            widest = max(len(names) for names in re.findall(r"^│ [* ]{0,3}(-.*?)  ", shown, re.MULTILINE))
            assert widest <= 36, "most of the width is for text"


def test_the_options_of_a_source_are_in_its_own_help():
    def shown(*arguments):
        return CliRunner().invoke(app, ["fit", *arguments]).output

    everything, digits = shown("-h"), shown("digits", "--seed", "1", "--help")
    assert ("number of test canvases" in everything, "number of test canvases" in digits) == (False, True)
    assert ("digit-patches" in everything, "digit-patches" in digits) == (True, False)


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    """The exit status and stderr of a command that is run in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command(*arguments)[::2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit"], "Missing argument 'SOURCE'; see attsvm fit --help"),
        (["fit", "digits", "--nope"], "No such option: --nope"),
        (["nope"], "No such command 'nope'; see attsvm --help"),
        (["fit", "digits", "--seeds", "2"], "--seeds: no longer an option; use --draws; see attsvm fit --help"),
        (["train", "p.npz", "--margin-tol", "1"], "--margin-tol: no longer an option; use --option margin_tol=VALUE"),
        (["fit-text", "a.csv", "--p", "2"], "--p: no longer an option; use --option p=VALUE; see attsvm fit-text"),
        (["inspect", "bert", "--view", "1.0"], "--view: no longer an option; use --head L.H --head all; see"),
        (["problem", "p.npz", "--dim", "3"], "--dim: only allowed with --example, which writes a problem"),
        (["fit", "digts", "--help"], "source: expected digits, digit-patches, npz, a file .npz, or"),
        (["train", "problem.npz", "--steps", "many"], "--steps: expected an integer, got 'many'; see attsvm train"),
        (["train", "problem.npz", "--penalty", "x"], "--penalty: expected a number, got 'x'; see attsvm train"),
        (["experiment", "imdb"], "Missing option '--out'"),
    ],
)
def test_a_usage_error_is_one_line(run, arguments, said):
    status, stderr = run(*arguments)
    assert status == 2
    assert stderr.startswith(f"attsvm: {said}")
    assert stderr.count("\n") == 1


def test_a_run_or_a_solve_that_does_not_end_as_requested_has_a_warning_and_an_exit_status(run, tmp_path):
    problem = attsvm.datasets.random_problem(6, 4, 3, seed=0)
    problem.save("problem.npz")
    # where the head is zero, so is the gradient
    attsvm.Problem(problem.tokens, labels=problem.labels, head=np.zeros(3)).save("flat.npz")
    stalled = "attsvm: warning: the run is stalled: the gradient is exactly zero, so training cannot continue\n"
    for command, name, *options in (
        ("train", "run.npz", "--steps", 5),
        ("fit", "result", "--steps", 5, "--no-train-head"),
    ):
        status, stderr = run(command, "flat.npz", "--out", name, *options)
        assert status == 3
        assert stalled in stderr
        assert (tmp_path / name).exists()
    status, stderr = run("solve", "problem.npz", "--selected", "optimal", "--norm", "l1.5", "--max-steps", 1)
    assert status == 3
    assert (
        stderr
        == "attsvm: warning: the solution is inaccurate: the duality gap or the violation exceeds the tolerance\n"
    )
    assert run("train", "problem.npz", "--steps", 5) == (0, "")


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("attsvm re", {"reproduce"}),
        ("attsvm reproduce prompt-", {"prompt-one-sequence", "prompt-several-sequences"}),
        ("attsvm sweep phase", {"phase-feasible", "phase-global"}),
        ("attsvm solve problem.npz --norm nu", {"nu", "nuclear"}),
        ("attsvm train problem.npz --optimizer mirror", {"mirror_descent"}),
        ("attsvm train problem.npz --qui", {"--quiet"}),
    ],
)
def test_a_shell_completes_commands_options_and_names(words, completed):
    variables = {"_ATTSVM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    found = CliRunner().invoke(app, prog_name="attsvm", env=variables).output
    assert {*found.split()} == completed


def test_every_command_is_quiet_or_verbose_alike(run, capsys):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    problem.save("problem.npz")
    for command in ("train problem.npz --steps 5 --out run.npz", "problem problem.npz"):
        assert run(*command.split(), "--quiet", "--json") == (0, "")
    status, stderr = run("train", "problem.npz", "--steps", 5, "--out", "loud.npz", "--verbose")
    assert status == 0
    assert stderr.endswith("loud.npz: the run\n")
    status, stderr = run("train", "nothing.npz", "-v")
    traceback, line = stderr.split("\nattsvm: ")
    assert "Traceback" in traceback
    assert run("train", "nothing.npz", "-q") == (status, f"attsvm: {line}")
    assert run("train", "nothing.npz", "-q", "-v")[1] == "attsvm: --quiet, --verbose: cannot be used together\n"


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "inspect --help",
        "sweep --list",
        "reproduce --list --json",
        "problem p.npz",
        "solve p.npz --selected optimal",
    ],
)
def test_a_closed_stream_and_another_encoding_end_no_command(run, monkeypatch, arguments):
    attsvm.datasets.random_problem(3, 4, 5, seed=0).save("p.npz")
    with io.TextIOWrapper(io.BytesIO(), "ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert run(*arguments.split()) == (0, "")
        written = stream.buffer.getvalue().decode()
    assert written
    if "--json" in arguments:
        assert "⟩" in str(json.loads(written)), "escaped as in JSON"
    monkeypatch.setattr(sys, "stdout", None)
    assert run(*arguments.split()) == (0, "")
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        status, said = run(*arguments.split())
    assert (status, said in ("", "attsvm: standard output: Broken pipe\n")) == (1, True)


def test_the_exit_status_follows_from_the_worst_status(capsys):
    assert exit_status({"finished": 3, "infeasible": 1}, "trial") == 0
    assert exit_status(["optimal", "inaccurate", "optimal"], "solution") == 3
    assert capsys.readouterr().err.startswith("attsvm: warning: 1 of 3 solutions are inaccurate: ")
    assert exit_status(["non_finite", "interrupted"], "run") == 130
