"""The further steps of the figure ``kinds`` in the largest dimension."""

import numpy as np

from attsvm.reproduce.figures.kinds import LastWeights, _drawn, _stacked
from attsvm.sweeps import Definition, measured
from attsvm.training import train


def test_runs_that_are_continued_in_the_largest_dimension_end_as_in_their_own():
    definition = Definition(
        {"dim": [2, 4]},
        [LastWeights(4)],
        trials=64,
        fixed={"num_sequences": 3, "num_tokens": 4, "init": "uniform", "steps": 10, "record": 1},
    )
    weights = measured(definition)["weights"][:, :8].reshape(16, 4, 4)
    problems = [_drawn(definition, cell, trial) for cell in range(2) for trial in range(8)]
    together = train(_stacked(problems, 4), init=weights, steps=300, record=1).weights
    apart = [
        train(problem, init=start[None, : problem.dim, : problem.dim], steps=300, record=1).weights[0]
        for problem, start in zip(problems, weights, strict=True)
    ]
    expected = [np.pad(each, [(0, 4 - len(each))] * 2) for each in apart]
    np.testing.assert_allclose(together, expected, rtol=0, atol=1e-9 * np.abs(together).max())
