"""The folder of a sweep: what a worker that outlives its client may write, and the names of its coordinates."""

import re
import shutil
import threading

import numpy as np
import pytest

import attsvm
from attsvm.errors import ProblemError
from attsvm.optimizers import gradient_descent
from attsvm.sweeps.arrays import coordinate
from attsvm.sweeps.compute import SweepChunk
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.driver import sweep
from attsvm.sweeps.store import SweepStore

pytestmark = pytest.mark.slow

SOLVED = Definition({"dim": [2]}, ["feasible"], trials=8)


def test_a_worker_that_outlives_its_client_commits_nothing_into_a_later_store(tmp_path):
    store = SweepStore(tmp_path / "store")
    arrays = {name: np.ones(8) for name in SOLVED.declared}
    store.prepare(SOLVED, 8, "")
    old = store.header()["digest"]
    shutil.rmtree(store.path)
    store.prepare(SOLVED.changed(seed=1), 8, "")
    with pytest.raises(ProblemError, match="got one that was created later"):
        store.write(SOLVED, 8, old, SweepChunk(0, 0, 8), arrays)
    assert store.done() == set()
    store.write(SOLVED, 8, store.header()["digest"], SweepChunk(0, 0, 8), arrays)
    assert store.done() == {SweepChunk(0, 0, 8)}


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


def test_a_store_whose_chunks_cannot_be_written_is_refused_in_one_line(tmp_path):
    store = tmp_path / "store"

    def filled_disk(problem, run):
        shutil.rmtree(store / "chunks")
        (store / "chunks").write_text("")
        return {"one": np.ones(8)}

    grid, options = {"dim": [2]}, {"store": store, "trials": 8, "workers": 0}
    for why in ("Not a directory", "File exists"):
        with pytest.raises(ProblemError, match=rf"^{re.escape(str(store))}: cannot be written \({why}\)$"):
            sweep(grid, [filled_disk], fixed={"steps": 1}, **options)


@pytest.mark.parametrize("address", [8786, "localhost", "tls://127.0.0.1:1"])
def test_what_is_no_address_of_a_scheduler_is_refused(tmp_path, address):
    pytest.importorskip("distributed")
    before = threading.enumerate()
    with pytest.raises(ProblemError, match=f"^scheduler: expected the address of a Dask scheduler, got {address!r}$"):
        sweep(SOLVED, store=tmp_path / "store", scheduler=address)
    assert set(threading.enumerate()) <= {*before}, "the thread of a client that did not start has ended"
    assert not (tmp_path / "store").exists()


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
    for path in files_of(store, "**/*.json") + files_of(store, "data.zarr/**/c/**/*"):
        data = path.read_bytes()
        flipped, bit = bytearray(data), int(bits.integers(8 * len(data)))
        flipped[bit // 8] ^= 1 << bit % 8
        for damaged in (b"", data + b"0", flipped):
            path.write_bytes(damaged)
            with pytest.raises(ProblemError, match=rf"^{re.escape(str(path))}: expected .*, got a damaged one; \w+"):
                attsvm.open_sweep(store)
        path.unlink()
        with pytest.raises(ProblemError, match=rf"^{re.escape(str(store))}.*\b{path.name}\b") as refused:
            attsvm.open_sweep(store)
        said = f"{path}: expected a file as the sweep wrote it, got no file"
        assert path.name == "sweep.json" or said in str(refused)
        path.write_bytes(data)
    one, other = files_of(store, "data.zarr/feasible/c/*/0")
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])  # a valid chunk in another place
    with pytest.raises(ProblemError, match=rf"^{re.escape(str(one))}: expected .*, got a damaged one"):
        attsvm.open_sweep(store)
    one.write_bytes(contents[0])
    assert attsvm.open_sweep(store).done.all()


def test_the_same_sweep_names_a_damaged_file_and_writes_what_the_user_deletes_and_nothing_else(
    whole, tmp_path, command
):
    store = tmp_path / "store"
    shutil.copytree(whole[0], store)
    damaged, missing, *_ = files_of(store, "data.zarr/feasible/c/0/**/*")
    record, axis = store / "chunks" / "1-8.json", store / "data.zarr" / "dim" / "c" / "0"
    contents = {path: path.read_bytes() for path in files_of(store, "data.zarr/**/*")}
    missing.unlink()
    for path, content in ((damaged, damaged.read_bytes()[:-1]), (axis, b""), (record, b"")):
        path.write_bytes(content)
        said = f"{path}: expected a file as the sweep wrote it, got a damaged one; delete it and run the sweep again"
        status, _, printed = command("sweep", "show", store)
        assert (status, printed.count("\n"), said in printed) == (2, 1, True), printed
        with pytest.raises(ProblemError, match=f"^{re.escape(said)}"):
            sweep(CHECKED, store=store, workers=0)
        path.unlink()
    counts = []
    found = sweep(CHECKED, store=store, workers=0, callback=lambda progress: counts.append(progress.step))
    assert counts == [40 - 8 * 3, 24, 32, 40]
    for opened in (found, attsvm.open_sweep(store)):
        assert opened.load().identical(whole[1].assign_attrs(command=opened.attrs["command"]))
    assert {path: path.read_bytes() for path in contents} == contents


def test_a_damaged_list_of_records_hides_no_record_that_is_missing(whole, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(whole[0], store)
    names, record = store / "chunks" / "names.txt", store / "chunks" / "1-8.json"
    lines, content = names.read_bytes(), record.read_bytes()
    line = next(line for line in lines.splitlines() if line.startswith(b"1-8"))
    record.unlink()
    said = f"{names}: expected a file as the sweep wrote it, got a damaged one; delete it"
    for damaged in (content, lines.replace(line, line[:-1] + b"?")):
        names.write_bytes(damaged)
        with pytest.raises(ProblemError, match=f"^{re.escape(said)}"):
            attsvm.open_sweep(store)
    # a full disk cut the line of an earlier record short; the next one has a line of its own
    names.write_bytes(lines.replace(line, b"").rstrip(b"\n") + b"\n" + line[:9])
    assert int(attsvm.open_sweep(store).done.sum()) == 32
    sweep(CHECKED, store=store, workers=0)
    assert line in names.read_bytes().splitlines()
    assert attsvm.open_sweep(store).done.all()


def test_files_that_are_not_the_store_s_change_nothing(whole, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / ".DS_Store").write_bytes(b"\0")
    one_chunk = sweep(CHECKED, store=store, workers=0, chunk=8, callback=lambda progress: progress.step == 8)
    for folder in (store, store / "chunks", store / "data.zarr", store / "data.zarr" / "feasible"):
        for name in (".DS_Store", "notes.txt", "2", "zarr.json.bak"):
            (folder / name).write_bytes(b"\0")
    shutil.copytree(store / "data.zarr" / "dim", store / "data.zarr" / "another")
    (store / "data.zarr" / "feasible" / "c" / "1").mkdir(exist_ok=True)
    (store / "data.zarr" / "feasible" / "c" / "1" / "2").write_bytes(b"no chunk")
    assert attsvm.open_sweep(store).load().identical(one_chunk.load())
    found = sweep(CHECKED, store=store, workers=0)
    assert found.load().identical(whole[1])
