"""The folder of a sweep: what a worker that outlives its client may write, and the names of its coordinates."""

import re
import shutil

import numpy as np
import pytest

import attsvm
from attsvm.errors import ProblemError
from attsvm.optimizers import gradient_descent
from attsvm.sweeps.arrays import coordinate
from attsvm.sweeps.compute import Task
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.estimate import estimate, num_programs
from attsvm.sweeps.measure import Measure, Output
from attsvm.sweeps.store import Store
from attsvm.sweeps.sweep import sweep

pytestmark = pytest.mark.slow

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
    assert store.done() == {Task(0, 0, 8)}


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


def test_a_store_whose_chunks_cannot_be_written_is_refused_in_one_line(tmp_path):
    store = tmp_path / "store"

    def filled_disk(problem, run):
        shutil.rmtree(store / "errors", ignore_errors=True)
        (store / "errors").write_text("")
        shutil.rmtree(store / "data.zarr")
        return {"one": np.ones(8)}

    grid, options = {"dim": [2]}, {"store": store, "trials": 8, "workers": 0}
    for why in ("Not a directory", "File exists"):
        with pytest.raises(ProblemError, match=rf"^{re.escape(str(store))}: cannot be written \({why}\)$"):
            sweep(grid, [filled_disk], fixed={"steps": 1}, **options)


@pytest.mark.parametrize("address", [8786, "localhost", "tls://127.0.0.1:1"])
def test_what_is_no_address_of_a_scheduler_is_refused(tmp_path, address):
    pytest.importorskip("distributed")
    with pytest.raises(ProblemError, match=f"^scheduler: expected the address of a Dask scheduler, got {address!r}$"):
        sweep(SOLVED, store=tmp_path / "store", scheduler=address)
    assert not (tmp_path / "store").exists()


def test_an_estimate_for_this_process_is_for_one_worker():
    assert estimate(SOLVED, 8, 0).workers == 1


def test_cells_of_other_sizes_or_names_have_programs_of_their_own():
    grid = {"dim": [2, 3], "learning_rate": [0.1, 0.2], "attention": ["combined", "factored"]}
    fixed = {"optimizer": "gradient_descent"}
    assert num_programs(Definition(grid, ["loss"], trials=8, fixed=fixed)) == 4


def test_an_estimate_compiles_also_programs_that_are_in_the_cache():
    training = Definition({"dim": [2]}, ["loss"], trials=8, fixed={"num_sequences": 1, "num_tokens": 2, "steps": 2})
    assert estimate(training, 8).compile_seconds > 10 * estimate(training, 8).seconds


def largest(problem, run):
    return {"largest": problem.tokens.max(axis=(1, 2, 3))}


CHECKED = Definition({"dim": [2, 3]}, ["feasible", largest], trials=20, block=8, fixed={"steps": 1, "svm.norm": "l1"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of six chunks, and what it holds."""
    store = tmp_path_factory.mktemp("sweep") / "store"
    return store, sweep(CHECKED, store=store, workers=0, chunk=8).load()


def files_of(store, pattern):
    return [path for path in sorted(store.glob(pattern)) if path.is_file()]


def test_no_damaged_file_is_opened_silently(whole):
    store, _ = whole
    bits = np.random.default_rng(0)
    arrays = ("feasible", "largest", "done")
    for path in (file for name in arrays for file in files_of(store, f"data.zarr/{name}/c/0/**/*")):
        data = path.read_bytes()
        flips = [bytearray(data) for _ in range(4)]
        for flipped, bit in zip(flips, bits.choice(8 * len(data), 4), strict=True):
            flipped[bit // 8] ^= 1 << bit % 8
        for damaged in [b"", data[: len(data) // 2], data + b"0", *flips]:
            path.write_bytes(damaged)
            with pytest.raises(ProblemError, match=r"data\.zarr/.*: expected chunk \d-\d+ as the sweep wrote it, got"):
                attsvm.open_sweep(store)
        path.write_bytes(data)
    for path in files_of(store, "data.zarr/feasible/c/**/*"):
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(ProblemError, match=r"data\.zarr/feasible: .*; to compute them again, run the sweep again"):
            attsvm.open_sweep(store)
        path.write_bytes(data)
    assert attsvm.open_sweep(store).done.all()


def test_the_same_sweep_computes_what_is_damaged_again_and_nothing_else(whole, tmp_path, command):
    store = tmp_path / "store"
    shutil.copytree(whole[0], store)
    first, second, *_ = files_of(store, "data.zarr/feasible/c/0/**/*")
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    files_of(store, "data.zarr/done/c/1/**/*")[0].write_bytes(b"")
    status, _, said = command("sweep", "show", store)
    assert (status, said.count("\n")) == (2, 1)
    assert "store/data.zarr/done: expected chunk 1-0 as the sweep wrote it" in said
    assert "(and 2 more like it)" in said
    counts = []
    with pytest.warns(RuntimeWarning, match=r"\(and 2 more like it\); it is computed again"):
        found = sweep(CHECKED, store=store, workers=0, callback=lambda progress: counts.append(progress.step))
    assert counts == [40 - 8 * 3, 24, 32, 40]
    for opened in (found, attsvm.open_sweep(store)):
        assert opened.load().identical(whole[1].assign_attrs(command=opened.attrs["command"]))
