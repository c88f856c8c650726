"""Threads of the linear algebra library: one for small problems, all for large products."""

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import attsvm
from attsvm._utils.threads import WORTH_SHARING, _libraries, threads_for

SINGLE = set()
"""Libraries of other solvers that were built for one thread."""


def threads():
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return {library["num_threads"] for library in libraries if library["filepath"] not in SINGLE}


@pytest.fixture(autouse=True)
def two_threads():
    _libraries.cache_clear()  # an oracle may have loaded another library since it was filled
    with threadpool_limits(2, user_api="blas"):
        SINGLE.update(library["filepath"] for library in threadpool_info() if library["num_threads"] == 1)
        yield


def test_a_small_problem_uses_one_thread():
    """With two, products of 16 × 16 matrices take up to 30 times as much time."""
    seen = []
    problem = attsvm.datasets.random_problem(3, 4, 4, 0)
    selected = attsvm.optimal_tokens(problem)
    attsvm.solve_svm(problem, selected, "nuclear", callback=lambda progress: seen.append(threads()))
    assert seen
    assert all(one == {1} for one in seen)
    assert threads() == {2}


def test_large_products_keep_the_threads():
    with threads_for(WORTH_SHARING):
        assert threads() == {2}
    with threads_for(WORTH_SHARING - 1):
        assert threads() == {1}
    assert threads() == {2}


def test_the_size_of_one_problem_decides_not_that_of_the_batch(monkeypatch):
    seen = []
    problem = attsvm.datasets.random_problem(3, 4, 4, 0, batch=(2,))
    monkeypatch.setattr("attsvm.svm.solve.threads_for", lambda size: seen.append(size) or threads_for(size))
    attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    assert seen == [2 * (3 * 4) * 4**2]
