"""Products with the constraints against rows written out by hand."""

import numpy as np
import pytest

import attsvm
from attsvm.selection import selection_sets
from attsvm.svm.constraints.attention_heads import stacked_heads
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.rows import dense_selection, factored_selection, reduced_rows
from oracles.att_svm import explicit_rows


def ragged_problem(seed, num_queries, sets):
    generator = np.random.default_rng(seed)
    n, T, d, d_q = 4, 6, 3, 2
    tokens = generator.standard_normal((n, T, d))
    shape = (n,) if num_queries is None else (n, num_queries)
    queries = generator.standard_normal((*shape, d_q))
    mask = generator.random((*shape, T)) < 0.7
    selected = generator.integers(0, T, shape)
    np.put_along_axis(mask, selected[..., None], True, axis=-1)
    if sets:
        kept = mask & (generator.random(mask.shape) < 0.3)
        np.put_along_axis(kept, selected[..., None], True, axis=-1)
        selected = kept
    relaxed = generator.random(shape) < 0.3
    return attsvm.Problem(tokens, queries=queries, mask=mask), selected, relaxed


def constraints_and_rows(seed, num_queries, sets):
    problem, selected, relaxed = ragged_problem(seed, num_queries, sets)
    relaxed_q = relaxed if num_queries else relaxed[:, None]
    constraints = Constraints.of(problem, selection_sets(problem, selected), relaxed_q)
    mask = problem.mask if num_queries else problem.mask[:, None]
    # where queries are unrolled, (n, Q, T) is (nQ, 1, T) in the same order
    shape = (problem.num_sequences, num_queries or 1, problem.num_tokens)
    assert constraints.right.size == np.prod(shape)
    selected = selected if num_queries else selected[:, None] if not sets else selected[:, None, :]
    rows = explicit_rows(problem.tokens, problem.queries, selected, mask, relaxed)
    return constraints, shape, *rows


CASES = [(seed, Q, sets) for seed in range(3) for Q in (None, 3) for sets in (False, True)]


@pytest.fixture(params=["unrolled", "shared"], autouse=True)
def layout(request, monkeypatch):
    """Small problems copy the tokens for each query, large ones share them: both must hold."""
    if request.param == "shared":
        monkeypatch.setattr("attsvm.svm.constraints.constraints.STORED_NUMBERS", 0)


@pytest.mark.parametrize(("seed", "num_queries", "sets"), CASES)
def test_products_agree_with_explicit_rows(seed, num_queries, sets):
    constraints, shape, rows, right, equality, places = constraints_and_rows(seed, num_queries, sets)
    generator = np.random.default_rng(seed)
    where = tuple(np.array(places).T)
    weights = generator.standard_normal(constraints.weights_shape)
    multipliers = np.zeros(shape)
    multipliers[where] = generator.standard_normal(len(rows))
    image = constraints.apply(weights).reshape(shape)
    np.testing.assert_allclose(image[where], rows @ weights.ravel(), atol=1e-13)
    assert np.count_nonzero(image) == len(rows)
    np.testing.assert_allclose(
        constraints.adjoint(multipliers.reshape(constraints.right.shape)).ravel(), multipliers[where] @ rows, atol=1e-12
    )
    np.testing.assert_allclose(constraints.norms.reshape(shape)[where], np.linalg.norm(rows, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(constraints.right.reshape(shape)[where], right)
    assert constraints.right.sum() == right.sum()
    if sets:
        np.testing.assert_array_equal(constraints.equality.reshape(shape)[where], equality)
        projected = constraints.project(weights).ravel()
        np.testing.assert_allclose(rows[equality] @ projected, 0, atol=1e-12)
        # nearest: what was taken off is a combination of the equalities
        off = weights.ravel() - projected
        np.testing.assert_allclose(
            rows[equality].T @ np.linalg.lstsq(rows[equality].T, off, rcond=None)[0], off, atol=1e-12
        )


@pytest.mark.parametrize(("seed", "num_queries", "sets"), CASES)
def test_dense_rows_are_the_explicit_ones_at_unit_norm(seed, num_queries, sets):
    constraints, _, rows, right, equality, _ = constraints_and_rows(seed, num_queries, sets)
    dense = constraints.rows()
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(dense.matrix, rows / lengths[:, None], atol=1e-13)
    np.testing.assert_allclose(dense.right, right / lengths, rtol=1e-12)
    np.testing.assert_array_equal(dense.equality, equality)


def test_tokens_are_not_copied_for_each_query():
    generator = np.random.default_rng(0)
    T, d = 64, 32
    problem = attsvm.Problem(generator.standard_normal((1, T, d)), queries=generator.standard_normal((1, T, d)))
    constraints = Constraints.of(problem, selection_sets(problem, np.zeros((1, T), int)))
    held = [getattr(constraints, name) for name in ("keys", "queries", "references", "inequality", "right", "norms")]
    assert sum(array.nbytes for array in held) <= 8 * (3 * T * d + 3 * T * T)


@pytest.mark.parametrize(("seed", "num_queries", "sets"), CASES)
def test_every_storage_of_unit_rows_multiplies_like_the_constraints(seed, num_queries, sets):
    """Two selections from one problem together, with different rows; the factored storage holds one at a time."""
    problem, selected, relaxed = ragged_problem(seed, num_queries, sets)
    relaxed = relaxed if num_queries else relaxed[:, None]
    first = problem.mask & (np.cumsum(problem.mask, axis=-1) == 1)
    both = np.stack([selected, first if sets else first.argmax(axis=-1)])
    constraints = Constraints.of(problem, selection_sets(problem, both), relaxed)
    shape = constraints.inequality.shape[1:]
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((2, *constraints.weights_shape))
    multipliers = generator.standard_normal((2, *shape)) * constraints.rows_mask
    scale = np.where(constraints.rows_mask, constraints.norms, 1.0)
    image, pulled = constraints.apply(weights) / scale, constraints.adjoint(multipliers).reshape(2, -1)

    dense, reduced = dense_selection(constraints), reduced_rows(constraints)
    for unit, applied, adjoint in (
        (dense.unit, dense.products.apply(weights.reshape(2, -1)), dense.products.adjoint),
        (
            reduced.unit,
            reduced.rows.apply(reduced.contract(weights)),
            lambda m: reduced.expand(reduced.rows.adjoint(m)),
        ),
    ):
        gathered = unit.gather(multipliers)
        np.testing.assert_allclose(unit.spread(gathered, shape), multipliers, atol=1e-12)
        np.testing.assert_allclose(applied, constraints.flat(image)[:, unit.position], atol=1e-12)
        np.testing.assert_allclose(adjoint(gathered).reshape(2, -1), pulled, atol=1e-12)

    for k in range(2):
        one = constraints[k : k + 1]
        rows = factored_selection(one)
        given, scales = weights[k].reshape(1, -1), generator.random((1, pulled.shape[1]))
        written_out = rows.products.scaled(np.ones_like(scales))
        np.testing.assert_allclose(rows.products.apply(given)[0], written_out[0] @ given[0], atol=1e-12)
        np.testing.assert_allclose(rows.products.apply(given)[0], image[k].reshape(-1)[rows.unit.position], atol=1e-12)
        np.testing.assert_allclose(
            rows.products.adjoint(rows.unit.gather(multipliers[k : k + 1])), pulled[k : k + 1], atol=1e-12
        )
        np.testing.assert_allclose(
            rows.products.gram(scales), written_out @ (written_out * scales[:, None, :]).mT, atol=1e-12
        )


@pytest.mark.parametrize("d", [3, 300])
def test_heads_below_each_other_have_the_margins_of_each_head(d):
    generator = np.random.default_rng(0)
    tokens, queries = generator.standard_normal((5, 4, d)), generator.standard_normal((5, d))
    problem, selected = attsvm.Problem(tokens, queries=queries, num_heads=3), generator.integers(0, 4, (3, 5))
    stacked = stacked_heads(Constraints.of(problem, selection_sets(problem, selected)))
    W = generator.standard_normal((3, d, d))
    logits = np.einsum("ntk,hkq,nq->hnt", tokens, W, queries)
    margins = np.take_along_axis(logits, selected[..., None], axis=-1) - logits
    found = stacked.apply(W.reshape(3 * d, d)).reshape(margins.shape)
    np.testing.assert_allclose(found, margins, rtol=0, atol=1e-14 * d**2)
