"""Products with differences of tokens: against exact sums, and without a copy of the tokens for each query."""

import math
from fractions import Fraction

import jax
import numpy as np

from attsvm._utils.jax_devices import compiler_options
from attsvm.training.softmax import gap_products


def test_long_sums_are_exact_up_to_rounding_and_copy_no_tokens():
    n, Q, T, d = 2, 32, 8, 75  # four parts of 16 terms, and 11 more
    generator = np.random.default_rng(0)
    tokens = generator.normal(size=(n, T, d, 1))
    tokens[:, 1] = tokens[:, 0] * (1 + 1e-15)  # the difference of the products would be rounding
    points = tokens[:, generator.integers(2, size=Q)]
    vectors = generator.normal(size=(n, Q, d, 1))
    with jax.enable_x64(True):
        program = jax.jit(gap_products).lower(points, tokens, vectors).compile(compiler_options=compiler_options(1))
        found = np.asarray(program(points, tokens, vectors))[..., 0]
    for i, q, t in np.ndindex(n, Q, T):
        x, y, g = ([Fraction(float(a)) for a in z[..., 0]] for z in (points[i, q], tokens[i, t], vectors[i, q]))
        terms = [(a - b) * c for a, b, c in zip(x, y, g, strict=True)]
        # each term has two roundings, and each partial sum one
        bound = 2.0**-53 * (d + 2) * math.fsum(abs(float(term)) for term in terms)
        assert abs(found[i, q, t] - float(sum(terms))) <= bound
    assert program.memory_analysis().temp_size_in_bytes < 8 * n * Q * T * d / 2
