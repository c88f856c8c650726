"""One callback for everything: it receives a Progress, and a true return value stops the work."""

from itertools import pairwise

import numpy as np
import pytest

import attsvm
from attsvm import Progress, Status

PROBLEM = attsvm.datasets.random_problem(6, 8, 10, 0)
SELECTED = attsvm.optimal_tokens(PROBLEM)


def estimate(callback):
    problem = attsvm.datasets.random_problem(40, 5, 6, 0, prompt=True)
    classifier = attsvm.AttentionClassifier(max_steps=100_000)
    return classifier.fit(problem.tokens, problem.labels, callback=callback)


WORK = {
    "train": lambda callback: attsvm.train(PROBLEM, steps=2_000_000_000, callback=callback),
    "nuclear": lambda callback: attsvm.solve_svm(PROBLEM, SELECTED, "nuclear", callback=callback),
    "path": lambda callback: attsvm.regularization_path(PROBLEM, np.geomspace(1, 1e3, 40), callback=callback),
    "estimator": estimate,
}


@pytest.mark.parametrize("name", WORK)
def test_a_true_return_value_stops(name):
    seen = []

    def stop(progress):
        seen.append(progress)
        return True

    result = WORK[name](stop)
    assert len(seen) == 1
    assert type(seen[0]) is Progress
    status = result.status_ if name == "estimator" else result.status
    # a solve is judged by its certificate
    assert status is (Status.INACCURATE if name == "nuclear" else Status.INTERRUPTED)


@pytest.mark.parametrize("name", ["nuclear", "path"])
def test_any_other_return_value_lets_it_end(name):
    seen = []
    result = WORK[name](seen.append)
    assert result.status is (Status.OPTIMAL if name == "nuclear" else Status.CONVERGED)
    assert len(seen) > 1
    steps = [progress.step for progress in seen]
    assert steps == sorted(steps)
    assert all(progress.steps is None or 0 <= progress.step <= progress.steps for progress in seen)
    assert all(one.seconds <= other.seconds for one, other in pairwise(seen))
