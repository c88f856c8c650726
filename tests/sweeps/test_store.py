"""The folder of a sweep: what a worker that outlives its client may write, and the names of its coordinates."""

import shutil

import numpy as np
import pytest

from attsvm.errors import ProblemError
from attsvm.optimizers import gradient_descent
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.estimate import estimate, num_programs
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure
from attsvm.sweeps.store import Store, Task, coordinate
from attsvm.sweeps.sweep import sweep

SOLVED = Definition({"dim": [2]}, ["feasible"], trials=8)


def test_a_worker_that_outlives_its_client_commits_nothing_into_a_later_store(tmp_path):
    store = Store(tmp_path / "store")
    arrays = {"feasible": np.ones(8)}
    store.prepare(SOLVED, 8, "")
    old = store.identity()
    shutil.rmtree(store.path)
    store.prepare(SOLVED.changed(seed=1), 8, "")
    with pytest.raises(ProblemError, match="got one that was created later"):
        store.write(SOLVED, 8, old, Task(0, 0, 8), arrays)
    assert store.done() == set()
    store.write(SOLVED, 8, store.identity(), Task(0, 0, 8), arrays)
    assert store.done() == {"0-0"}


def test_optimizers_of_one_name_have_coordinates_of_their_own():
    assert len(set(coordinate([gradient_descent(0.1), gradient_descent(0.2)]))) == 2
    with pytest.raises(ProblemError, match="grid: expected values of different names"):
        coordinate(["l1", "l1"])


def test_a_problem_error_is_not_tried_again(tmp_path):
    calls = []

    def refused(problem, run):
        calls.append(0)
        raise ProblemError("no")

    with pytest.warns(RuntimeWarning, match="ProblemError: no"):
        found = sweep({"dim": [2]}, [refused], store=tmp_path / "store", trials=8, workers=0, fixed={"steps": 1})
    assert len(calls) == 1
    assert found.dim.values.tolist() == [2], "also without any output"


@pytest.mark.parametrize("chunk", [8, 2000])
def test_a_store_takes_at_most_the_estimated_space(tmp_path, chunk):
    class Noise(Measure):
        """Numbers that cannot be compressed."""

        name = "noise"
        outputs = {"noise": Output()}

        def measure(self, block):
            return {"noise": np.random.default_rng(0).random(8)}

    definition = Definition({"dim": [2]}, [Noise()], trials=2000, block=8)
    sweep(definition, store=tmp_path / "store", workers=0, chunk=chunk)
    files = [path.lstat().st_size for path in (tmp_path / "store").rglob("*") if path.is_file()]
    used = sum(-(-size // 4096) * 4096 for size in files)
    assert used <= estimate(definition, chunk, 0).bytes <= 1.1 * used + 2**16


def test_an_estimate_for_this_process_is_for_one_worker():
    assert estimate(SOLVED, 8, 0).workers == 1


def test_cells_of_other_sizes_or_names_have_programs_of_their_own():
    grid = {"dim": [2, 3], "learning_rate": [0.1, 0.2], "attention": ["combined", "factored"]}
    fixed = {"optimizer": "gradient_descent"}
    assert num_programs(Definition(grid, ["loss"], trials=8, fixed=fixed)) == 4


def test_an_estimate_compiles_also_programs_that_are_in_the_cache():
    training = Definition({"dim": [2]}, ["loss"], trials=8, fixed={"num_sequences": 1, "num_tokens": 2, "steps": 2})
    assert estimate(training, 8).compile_seconds > 10 * estimate(training, 8).seconds
