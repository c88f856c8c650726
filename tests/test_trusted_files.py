"""A result file is data: without the user's trust, loading and using it runs no code that it names."""

import contextlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, Run, Solution
from attsvm._utils.archives import META
from attsvm.datasets import random_problem
from attsvm.norms import written_norm
from attsvm.optimizers import mirror_descent, steepest_descent

PROBLEM = random_problem(3, 4, 5, seed=0)
MODULE = """
from pathlib import Path
Path("RAN").touch()
import jax.numpy as jnp
import attsvm
from attsvm.norms import Lp
class Mine(Lp):
    pass
def made(learning_rate=0.1):
    return attsvm.optimizers.gradient_descent(learning_rate)
def hinge(m):
    return jnp.maximum(0, 1 - m)
"""
UNTRUSTED = r"a file names (it|only_a_file_names:\w+): .*load the file with trusted=True"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a module that is not imported."""
    (tmp_path / "only_a_file_names.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.setattr("attsvm._utils.extensions._given", set())
    yield tmp_path
    sys.modules.pop("only_a_file_names", None)


@pytest.fixture(scope="module")
def results():
    with_norm = attsvm.train(PROBLEM, optimizer=steepest_descent(norm="spectral"), steps=2)
    plain = attsvm.train(PROBLEM, optimizer=mirror_descent(p=2.5), penalty=0.1, steps=2)
    solution = attsvm.solve_svm(PROBLEM, attsvm.optimal_tokens(PROBLEM))
    return {"solution": solution, "norm": with_norm, "run": plain}


def changed(result, change):
    """The file of a result whose meta data are changed."""
    result.save("result.npz")
    with np.load("result.npz") as archive:
        arrays = dict(archive)
    meta = json.loads(arrays.pop(META).tobytes())
    change(meta)
    np.savez("result.npz", **arrays, **{META: np.frombuffer(json.dumps(meta).encode(), np.uint8)})
    return "result.npz"


def names_norm(meta):
    meta["norm"] = {"name": "mine", "class": "only_a_file_names:Mine", "fields": {"p": "3.0"}}


def nested_norm(meta):
    of = {"norm": {"name": "mine", "class": "only_a_file_names:Mine", "fields": {"p": "3.0"}}}
    meta["norm"] = {"name": "2*mine", "class": "attsvm.norms.scaled:Scaled", "fields": {"of": of, "factor": "2.0"}}


def configured(name, **arguments):
    return lambda meta: meta.update(optimizer_config={"name": name, "arguments": arguments})


ATTACKS = {
    "a norm": ("solution", names_norm),
    "a norm in a norm": ("solution", nested_norm),
    "the norm of a run": ("norm", names_norm),
    "the norm of a limit": ("norm", lambda meta: names_norm(meta["limit"])),
    "a module of attsvm that runs": ("solution", lambda meta: meta["norm"].update({"class": "attsvm.__main__:main"})),
    "an optimizer": ("run", configured("only_a_file_names:made")),
    "a norm of an optimizer": ("run", configured("steepest_descent", norm="only_a_file_names:Mine")),
    "an optimizer in an optimizer": (
        "run",
        configured("momentum", inner={"name": "only_a_file_names:made", "arguments": {}}),
    ),
    "a potential": ("run", configured("mirror_descent", potential="only_a_file_names:made")),
    "a function of another package": ("run", configured("os:system", command="touch RAN")),
    "a function within a package": ("run", configured("optax:os.system", command="touch RAN")),
    "a loss": ("run", lambda meta: meta.update(loss_name="only_a_file_names:hinge")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_code_runs_by_loading_printing_resuming_and_predicting(attack, results, here):
    kind, change = ATTACKS[attack]
    path = list(sys.path)
    loaded = type(results[kind]).load(changed(results[kind], change))
    repr(loaded)
    uses = [lambda: attsvm.solve_svm(PROBLEM, loaded, norm=loaded.norm)]
    if isinstance(loaded, Run):
        uses = [lambda: attsvm.train(PROBLEM, init=loaded, steps=1), lambda: attsvm.predict_direction(PROBLEM, loaded)]
    for use in uses:
        with contextlib.suppress(ProblemError):
            use()
    assert not Path("RAN").exists()
    assert sys.path == path


def test_the_error_says_how_to_load_the_file_and_trust_loads_all_of_it(results, here):
    def change(meta):
        names_norm(meta["limit"])  # that of the run
        configured("only_a_file_names:made", learning_rate=0.2)(meta)
        meta["loss_name"] = "only_a_file_names:hinge"

    file = changed(results["run"], change)
    run = Run.load(file)
    assert (run.norm.name, type(run.norm).__name__) == ("mine", "MissingNorm")
    for use in (
        lambda: attsvm.margin(PROBLEM, run.weights, run.selected, norm=run.norm),
        lambda: attsvm.train(PROBLEM, init=run, steps=1),
        lambda: attsvm.predict_direction(PROBLEM, run),  # of a run with a penalty, from its loss
    ):
        with pytest.raises(ProblemError, match=UNTRUSTED):
            use()
    run.save("again.npz")  # what is missing is still in the file
    path = list(sys.path)
    trusted = Run.load("again.npz", trusted=True)
    assert Path("RAN").exists()
    assert sys.path == path
    assert type(trusted.norm).__name__ == "Mine"
    assert attsvm.train(PROBLEM, init=trusted, steps=1).live_optimizer.numbers == {"learning_rate": 0.2}
    attsvm.predict_direction(PROBLEM, trusted)
    with pytest.raises(ProblemError, match=r"^trusted: expected True or False, got 1$"):
        Run.load("again.npz", trusted=1)


def test_what_is_imported_or_named_by_the_user_is_found(results, here):
    file = changed(results["solution"], names_norm)
    attsvm.train(PROBLEM, optimizer="only_a_file_names:made", steps=2).save("run.npz")  # the user names the module
    assert Solution.load(file).norm.name == "l3"
    assert attsvm.train(PROBLEM, init=Run.load("run.npz"), steps=1).step == 3


def test_the_command_continues_with_what_it_names_and_runs_nothing_else(results, here, command):
    PROBLEM.save("problem.npz")
    file = changed(results["run"], configured("only_a_file_names:made"))
    arguments = ("train", "problem.npz", "--init", file, "--steps", 1)
    code, _, error = command(*arguments)
    assert code != 0
    assert "a file names only_a_file_names:made: pass the optimiser" in error
    assert not Path("RAN").exists()
    code, _, error = command(*arguments, "--optimizer", "only_a_file_names:made")
    assert code == 0, error
    assert Path("RAN").exists()


def test_every_built_in_norm_is_found_without_trust():
    for norm in ("l1.75", "gamma2", "nu", "2*nuclear", "max over heads of l2"):
        written = written_norm(attsvm.norms.parse_norm(norm))
        assert attsvm.norms.read_norm(written) == attsvm.norms.parse_norm(norm)
