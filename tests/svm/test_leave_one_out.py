"""The share of sequences with support tokens bounds the errors of solutions that leave a sequence out."""

import numpy as np
import pytest

import attsvm


def planted(seed, n=7):
    """Tokens, queries and a selection that is a function of each sequence, so the sequences are exchangeable."""
    generator = np.random.default_rng(seed)
    tokens, queries = generator.standard_normal((n, 5, 4)), generator.standard_normal((n, 4))
    return tokens, queries, np.einsum("ntk,kq,nq->nt", tokens, generator.standard_normal((4, 4)), queries).argmax(1)


@pytest.mark.parametrize(("norm", "slack"), [("frobenius", None), (1.5, None), (3, None), ("frobenius", 0.3)])
def test_leaving_sequences_out_makes_at_most_as_many_errors(norm, slack):
    errors, bounds = [], []
    for seed in range(6):
        tokens, queries, selected = planted(seed)
        whole = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected, norm, slack=slack)
        wrong = 0
        for i in range(len(selected)):
            rest = np.arange(len(selected)) != i
            problem = attsvm.Problem(tokens[rest], queries=queries[rest])
            weights = attsvm.solve_svm(problem, selected[rest], norm, slack=slack).direction
            wrong += (tokens[i] @ weights @ queries[i]).argmax() != selected[i]
        errors.append(wrong / len(selected))
        bounds.append(whole.leave_one_out)
    assert (np.array(errors) <= bounds).all()
    assert 0 < np.mean(errors) < np.mean(bounds) < 1 + 1e-9


def test_copies_of_a_sequence_without_support_tokens_lower_the_share():
    tokens, queries, selected = planted(1)
    one = attsvm.solve_svm(attsvm.Problem(tokens, queries=queries), selected)
    # twice the query doubles the margins of a sequence, which then has no support token
    more = np.concatenate([tokens, tokens]), np.concatenate([queries, 2 * queries]), np.concatenate([selected] * 2)
    both = attsvm.solve_svm(attsvm.Problem(more[0], queries=more[1]), more[2])
    assert both.leave_one_out == pytest.approx(one.leave_one_out / 2, rel=1e-15)


def test_it_is_none_with_the_reason_where_it_is_no_bound():
    problem = attsvm.datasets.random_problem(4, 4, 5, seed=0)
    selected = attsvm.optimal_tokens(problem)
    run = attsvm.train(problem, steps=200)
    sets = np.eye(4, dtype=bool)[selected] | np.eye(4, dtype=bool)[(selected + 1) % 4]
    for solution, reason in (
        (attsvm.solve_svm(problem, selected, "nuclear"), "nuclear need not be unique"),
        (attsvm.solve_svm(problem, selected, 1.0), "need not be unique"),
        (attsvm.solve_svm(problem, selected, relaxed=[True, False, False, False]), "with relaxed="),
        (attsvm.solve_svm(problem, run), "those of a Run"),
        (attsvm.solve_svm(problem, sets), "sets of tokens"),
        (attsvm.solve_svm(attsvm.Problem([[[0.0], [1.0], [-1.0]]]), [0]), "status is infeasible"),
    ):
        assert solution.leave_one_out is None
        assert reason in solution.no_leave_one_out


def test_a_batch_and_a_prompt_have_a_share_for_each_problem():
    problem = attsvm.datasets.random_problem(4, 4, 5, seed=0, batch=(3,), prompt=True)
    batch = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), "nuclear")  # of vectors, l2
    optimal = batch.status == "optimal"
    assert batch.leave_one_out.shape == (3,)
    assert (np.isnan(batch.leave_one_out) == ~optimal).all()
    assert [batch[k].leave_one_out for k in np.flatnonzero(optimal)] == batch.leave_one_out[optimal].tolist()
