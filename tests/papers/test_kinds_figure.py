"""The further steps of the figure ``kinds``."""

import numpy as np

from attsvm.papers.figures import kinds
from attsvm.sweeps import Definition, measured
from attsvm.sweeps.sources import draw_random as draw
from attsvm.theory import Kind
from attsvm.training import train


def test_runs_that_are_continued_together_end_as_alone(monkeypatch):
    monkeypatch.setattr(kinds, "PADDED_DIMS", (2, 3))
    dims, sizes = [1, 2, 3], {"num_sequences": 2, "num_tokens": 3}
    fixed = {**sizes, "init": "uniform", "steps": 10, "record": 1, "pad_to": (2, 3)}
    definition = Definition({"dim": dims}, ["kind", kinds.LastWeights(3)], trials=64, fixed=fixed)
    found = measured(definition)
    found["kind"][:] = 0
    astray = {0: [3], 1: [0, 60], 2: [7]}
    for cell, trials in astray.items():
        found["kind"][cell, trials] = kinds.KINDS.index(Kind.NOT_LOCAL)
    number = 0
    for cells, problem, weights in kinds._continued(definition, found, 300):
        assert weights.shape[-1] == problem.dim
        for cell, ended in zip(cells, weights, strict=True):
            dim, trial = dims[cell], astray[cell].pop(0)
            own = draw([definition.generator(cell, trial)], **sizes, dim=dim)
            run = train(own, init=found["weights"][cell, trial, :dim, :dim][None], steps=300, record=1)
            expected = np.pad(run.weights[0], (0, len(ended) - dim))
            np.testing.assert_allclose(ended, expected, rtol=0, atol=1e-9 * np.abs(ended).max())
            number += 1
    assert number == 4
