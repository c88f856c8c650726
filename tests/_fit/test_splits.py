"""The parts for training and testing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attsvm
from attsvm._fit.splits import split


@given(
    per_class=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    fraction=st.floats(0, 0.99),
    seed=st.integers(0, 5),
)
def test_a_split_keeps_proportions_and_loses_nothing(per_class, fraction, seed):
    labels = np.repeat([1.0, -1.0], per_class)
    problem = attsvm.Problem(np.ones((len(labels), 2, 3)), labels=labels)
    wanted = [round(fraction * number) for number in per_class]
    if any(gone == number for gone, number in zip(wanted, per_class, strict=True)):
        with pytest.raises(attsvm.ProblemError, match="expected both classes among the training sequences"):
            split(problem, fraction, seed)
        return
    train, test = split(problem, fraction, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert [int((labels[test] == label).sum()) for label in (1, -1)] == wanted
    assert all(np.array_equal(x, y) for x, y in zip((train, test), split(problem, fraction, seed), strict=True))
