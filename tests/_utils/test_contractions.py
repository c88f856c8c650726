"""Sums of contractions against NumPy."""

import jax
import numpy as np
import pytest

from attsvm._utils.contractions import LONGEST_WRITTEN_OUT, contractions


@pytest.mark.parametrize("terms", [3, LONGEST_WRITTEN_OUT + 1])
def test_sum_of_contractions_is_that_of_einsum(terms):
    generator = np.random.default_rng(0)
    a, b, other = (generator.standard_normal((2, terms, 4, size)) for size in (5, 1, 5))
    c, plus = generator.standard_normal((2, 4, 6, 1)), generator.standard_normal((2, 4, 4, 5))
    d = generator.standard_normal((2, 4, 6, 5))
    with jax.enable_x64(True):
        products = ("ntk,ntq->nkq", a, b), ("nke,nqe->nkq", c, d), ("ntk,ntq->nkq", other, a)
        given = [(subscripts, jax.numpy.asarray(x), jax.numpy.asarray(y)) for subscripts, x, y in products]
        found = np.asarray(contractions(*given, plus=jax.numpy.asarray(plus)))
    of_short = np.einsum("nkeB,nqeB->nkqB", np.broadcast_to(c, d.shape), d)
    of_long = np.einsum("ntkB,ntqB->nkqB", a, np.broadcast_to(b, a.shape)) + np.einsum("ntkB,ntqB->nkqB", other, a)
    # sums of some hundred terms of order 1
    assert np.abs(found - (of_short + of_long + plus)).max() <= 1e-12
