"""Saving, loading, indexing and printing, for any result; two results are defined here with every kind of field."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import attsvm
from attsvm import ProblemError, Status
from attsvm.results import Result, per_record, per_trial, shared, unsaved


@dataclass(frozen=True, eq=False, repr=False)
class Inner(Result):
    kind: ClassVar[str] = "inner"
    gap: Any = per_trial()


@dataclass(frozen=True, eq=False, repr=False)
class Outer(Result):
    kind: ClassVar[str] = "outer"
    schema: ClassVar[int] = 3

    weights: Any = per_trial()
    step: Any = per_trial()
    parameters: Any = per_trial()
    history: Any = per_record()
    limit: Any = per_trial()  # None without being the default
    solution: Inner | None = per_trial(None)
    radius: float = shared(1.0, write=lambda x: {"hex": x.hex()}, read=lambda x: float.fromhex(x["hex"]))
    seed: int | None = shared(None)
    live: Any = unsaved()

    def _summary(self):
        return f"{self.status} after {self.step} steps"


def outer(batch=(), records=5, **changes):
    rng = np.random.default_rng(0)
    status = np.resize(["finished", "converged", "stalled"], batch) if batch else Status.STALLED
    given = {
        "status": status,
        "weights": rng.standard_normal((*batch, 3, 2)),
        "step": rng.integers(9, size=batch) if batch else 7,
        "parameters": {"v": rng.standard_normal((*batch, 4)), "c": rng.standard_normal(batch) if batch else 0.5},
        "history": {"steps": np.arange(records), "loss": rng.standard_normal((records, *batch))},
        "solution": Inner(status=status, gap=rng.random(batch) if batch else 0.1),
        "limit": None,
        "radius": 0.1,
        "live": object(),
    }
    return Outer(**{**given, **changes})


def saved(result, tmp_path, as_class=Outer):
    result.save(tmp_path / "result.npz")
    return as_class.load(tmp_path / "result.npz")


def assert_same(left, right, fields=("status", "weights", "step", "limit", "radius", "seed")):
    for name in fields:
        mine, other = getattr(left, name), getattr(right, name)
        assert type(mine) is type(other), name
        np.testing.assert_array_equal(mine, other, name)
    for name in ("parameters", "history"):
        assert getattr(left, name).keys() == getattr(right, name).keys()
        for key, value in getattr(left, name).items():
            assert np.shape(value) == np.shape(getattr(right, name)[key])
            np.testing.assert_array_equal(value, getattr(right, name)[key])
    assert type(left.solution) is type(right.solution)
    if left.solution is not None:
        np.testing.assert_array_equal(left.solution.gap, right.solution.gap)
        np.testing.assert_array_equal(left.solution.status, right.solution.status)


@pytest.mark.parametrize("batch", [(), (4,), (2, 3), (0,)])
@pytest.mark.parametrize("changes", [{}, {"solution": None, "parameters": {}, "history": {}, "radius": np.inf}])
def test_a_loaded_result_equals_the_saved_one_but_for_what_is_unsaved(batch, changes, tmp_path):
    result = outer(batch, **changes)
    found = saved(result, tmp_path)
    assert_same(found, result)
    assert found.live is None


def test_statuses_are_members_after_loading_and_indexing(tmp_path):
    single = saved(outer(), tmp_path)
    assert single.status is Status.STALLED
    assert single.solution.status is Status.STALLED
    batch = saved(outer((3,)), tmp_path)
    assert [one.status for one in batch] == [Status.FINISHED, Status.CONVERGED, Status.STALLED]
    assert all(isinstance(one.status, Status) and isinstance(one.solution.status, Status) for one in batch)
    assert isinstance(batch[0].step, int)
    assert isinstance(batch[0].parameters["c"], float)


@pytest.mark.parametrize(
    "index",
    [1, -1, slice(1, None), (0, 2), (slice(None), -1), np.array([1, 0]), [True, False], ([0, 1], slice(None), [3, 0])],
)
def test_an_index_addresses_the_batch_axes_of_every_field(index):
    result = outer((2, 3, 4))
    found = result[index]
    places = np.arange(2 * 3 * 4).reshape(2, 3, 4)[index]  # which trials these are
    assert found.batch_shape == places.shape
    flat = {"weights": result.weights.reshape(-1, 3, 2), "step": result.step.ravel()}
    for name, values in flat.items():
        np.testing.assert_array_equal(getattr(found, name), values[places])
    np.testing.assert_array_equal(found.parameters["v"], result.parameters["v"].reshape(-1, 4)[places])
    np.testing.assert_array_equal(found.history["loss"], result.history["loss"].reshape(5, -1)[:, places])
    np.testing.assert_array_equal(found.history["steps"], np.arange(5))
    np.testing.assert_array_equal(found.solution.gap, result.solution.gap.ravel()[places])
    assert found.limit is None
    assert found.radius == result.radius


@pytest.mark.parametrize(
    ("index", "error"), [(2, IndexError), ((0, 0), IndexError), (..., TypeError), (None, TypeError), ("a", IndexError)]
)
def test_an_index_beyond_the_batch_axes_is_refused(index, error):
    with pytest.raises(error):
        outer((2,))[index]


def test_a_batch_has_a_length_and_a_single_result_has_none():
    assert len(outer((4, 2))) == 4
    assert [one.batch_shape for one in outer((4, 2))] == [(2,)] * 4
    for use in (len, iter, lambda result: result[0]):
        with pytest.raises(TypeError, match="outer without batch axes"):
            use(outer())


def test_every_result_is_true():
    assert all(bool(result) for result in (outer(), outer((2,)), outer((0,))))
    assert outer()
    assert outer((0,))


def test_a_result_prints_its_summary_and_a_batch_counts_its_statuses():
    assert repr(outer()) == "Outer(stalled after 7 steps)"
    assert repr(outer((2, 2))) == "Outer(2 × 2; 1 converged, 2 finished, 1 stalled)"


def test_a_newer_schema_and_another_kind_are_refused(tmp_path):
    path = tmp_path / "result.npz"

    class Newer(Outer):
        schema = 4

    Newer(**vars(outer())).save(path)
    with pytest.raises(ProblemError, match=r"schema 3 or lower, got schema 4.*newer version"):
        Outer.load(path)
    Newer.load(path)
    with pytest.raises(ProblemError, match=r"inner.*outer"):
        Inner.load(path)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(ProblemError, match="outer"):
        Outer.load(path)


def test_a_file_without_a_field_takes_its_default_or_is_refused(tmp_path):
    @dataclass(frozen=True, eq=False, repr=False)
    class Older(Result):
        kind: ClassVar[str] = "inner"
        schema: ClassVar[int] = 1

    @dataclass(frozen=True, eq=False, repr=False)
    class Extended(Inner):
        note: str = shared("none")
        seconds: Any = per_trial(None)

    path = tmp_path / "result.npz"
    Inner(status=Status.OPTIMAL, gap=0.5).save(path)
    found = Extended.load(path)
    assert (found.gap, found.note, found.seconds) == (0.5, "none", None)
    Older(status=Status.OPTIMAL).save(path)
    with pytest.raises(ProblemError, match=r"not a complete inner.*gap"):
        Inner.load(path)


def test_a_run_whose_file_lacks_an_array_names_it(tmp_path):
    path = tmp_path / "run.npz"
    attsvm.train(attsvm.datasets.random_problem(3, 4, 5, seed=0), steps=2).save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    named = {name: name.split("/") for name in arrays if name not in ("__meta__", "log_scale")}
    assert {"weights", "parameters/W", "history/weights"} < set(named)
    for name, (field, *entry) in named.items():
        np.savez(path, **{other: array for other, array in arrays.items() if other != name})
        said = f"{path}: not a complete run ({field}: expected an array{''.join(f' {x!r}' for x in entry)}, got none)"
        with pytest.raises(ProblemError, match=re.escape(said)):
            attsvm.Run.load(path)


def test_an_unknown_status_in_a_file_is_refused(tmp_path):
    Inner(status="excellent", gap=0.5).save(tmp_path / "result.npz")
    with pytest.raises(ProblemError, match="excellent"):
        Inner.load(tmp_path / "result.npz")


def test_objects_are_refused_when_saving(tmp_path):
    with pytest.raises(TypeError, match="outer: limit: expected numbers"):
        outer(limit=[None, {}]).save(tmp_path / "result.npz")
    assert not list(tmp_path.iterdir())


def test_a_field_must_say_what_it_holds(tmp_path):
    @dataclass(frozen=True, eq=False, repr=False)
    class Undeclared(Result):
        kind: ClassVar[str] = "undeclared"
        value: float = 0.0

    with pytest.raises(TypeError, match="value: expected a field made by per_trial"):
        Undeclared(status=Status.OPTIMAL).save(tmp_path / "result.npz")


def test_statuses_are_their_words():
    assert Status("non_finite") is Status.NON_FINITE
    assert f"{Status.OPTIMAL}" == "optimal" == Status.OPTIMAL
    table = Status.__doc__.split("meaning")[1]
    assert all(f"``{status}``" in table for status in Status)
