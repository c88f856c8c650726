"""Runs with the token loss: their predicted direction and finite part, and causal problems."""

import numpy as np
import pytest
import scipy

import attsvm
from oracles.next_token import unit_vectors


def contexts_of(rng, n, cyclic):
    while True:
        contexts = [rng.permutation(6)[:4] for _ in range(n)]
        graph = attsvm.token_graph(contexts, [rng.choice(context) for context in contexts], num_tokens=6)
        if graph.is_cyclic == cyclic:
            return graph


@pytest.mark.parametrize(("cyclic", "standing", "far"), [(False, "measured", 2e-3), (True, "conjecture", 1e-2)])
def test_a_token_run_is_predicted_by_the_graph_svm_and_not_by_its_selection(cyclic, standing, far):
    rng = np.random.default_rng(3)
    graph, vocabulary = contexts_of(rng, 6, cyclic), unit_vectors(rng, 6, 8)
    problem = graph.training_problem(vocabulary)
    run = attsvm.train(problem, loss="token", steps=2000)
    found = attsvm.predict_direction(problem, run)
    solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    assert found.standing == standing
    assert found.direction == pytest.approx(solution.direction, abs=1e-9)
    assert found.finite == pytest.approx(graph.finite_minimiser(vocabulary).weights, abs=1e-12)
    # steps of constant length do not settle in the finite part, so they stay farther away with cycles (a ratio of .88)
    assert 1 - attsvm.correlation(run.weights - found.finite, found.direction) < far
    if cyclic:  # the tokens of largest logit are another problem
        other = attsvm.solve_svm(problem, run.selected)
        assert other.status != "optimal" or not np.allclose(other.direction, found.direction, rtol=1e-3)


@pytest.mark.parametrize(("cyclic", "of_factors"), [(False, "conjecture"), (True, "none")])
def test_standing_of_mirror_descent_and_of_factors_is_that_of_the_measurement(cyclic, of_factors, tmp_path):
    rng = np.random.default_rng(4)
    graph, vocabulary = contexts_of(rng, 6, cyclic), unit_vectors(rng, 6, 8)
    problem = graph.training_problem(vocabulary)
    mirror = attsvm.train(problem, loss="token", optimizer=attsvm.optimizers.mirror_descent(p=3), steps=20)
    factored = attsvm.train(problem, loss="token", attention="factored", steps=20)
    for run, name, standing in ((mirror, "l3", "conjecture"), (factored, "nuclear", of_factors)):
        run.save(tmp_path / "run.npz")  # a run that is read from a file still knows its loss
        found = attsvm.predict_direction(problem, attsvm.Run.load(tmp_path / "run.npz"))
        assert (found.norm.name, found.standing, found.finite) == (name, standing, None)
        assert "benchmarks/standings.py" in found.source  # 20 steps are fewer than were measured
        solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected, norm=found.norm)
        assert found.solution.value == pytest.approx(solution.value, rel=1e-6)
    # nothing is predicted for another norm than that of the optimizer, and nothing was measured for others
    sign = attsvm.train(problem, loss="token", optimizer=attsvm.optimizers.steepest_descent(norm="linf"), steps=20)
    for run, norm, standing in ((mirror, "frobenius", "none"), (sign, None, "conjecture")):
        assert attsvm.predict_direction(problem, run, norm).standing == standing


def test_a_causal_problem_has_the_loss_and_the_limit_of_all_prefixes():
    rng = np.random.default_rng(5)
    texts = [rng.integers(4, size=length).tolist() for length in (7, 3, 1, 9)]
    vocabulary = unit_vectors(rng, 4, 6)
    with pytest.warns(UserWarning, match="do not contain their next token"):
        graph = attsvm.token_graph(texts, num_tokens=4)
    problem = attsvm.next_token.causal_problem(texts, vocabulary)
    start = rng.standard_normal((6, 6))
    run = attsvm.train(problem, loss="token", init=start, steps=50)
    own = attsvm.train(graph.training_problem(vocabulary), loss="token", init=start, steps=50)
    losses = []
    for text in texts:
        for i in range(1, len(text)):
            if text[i] in text[:i]:
                share = scipy.special.softmax(vocabulary[text[:i]] @ start @ vocabulary[text[i - 1]])
                losses.append(-np.log(share[np.array(text[:i]) == text[i]].sum()))
    assert run.history["loss"][0] == pytest.approx(np.mean(losses), rel=1e-12)
    assert run.weights == pytest.approx(own.weights, abs=1e-9)
    found = attsvm.predict_direction(problem, run)
    assert found.direction == pytest.approx(attsvm.predict_direction(graph.training_problem(vocabulary), own).direction)
    assert found.finite == pytest.approx(graph.finite_minimiser(vocabulary).weights, abs=1e-10)


def test_batches_and_trials_get_their_own_predictions():
    rng = np.random.default_rng(6)
    contexts = np.stack([[rng.permutation(4)[:3] for _ in range(4)] for _ in range(2)])
    labels, vocabulary = contexts[:, :, 0], unit_vectors(rng, 4, 5)
    problem = attsvm.Problem(
        np.eye(4)[contexts],
        labels=labels,
        queries=vocabulary[contexts[:, :, -1]],
        keys=vocabulary[contexts],
        head=np.eye(4),
    )
    run = attsvm.train(problem, loss="token", init=np.zeros((3, 2, 5, 5)), steps=20)
    found = attsvm.predict_direction(problem, run)
    assert found.direction.shape == found.finite.shape == (3, 2, 5, 5)
    for i in range(2):
        graph = attsvm.token_graph(contexts[i], labels[i], num_tokens=4)
        solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
        assert found.direction[1, i] == pytest.approx(solution.direction, abs=1e-9)
        assert found.finite[1, i] == pytest.approx(graph.finite_minimiser(vocabulary).weights, abs=1e-10)


def test_models_whose_outputs_are_no_attention_are_refused():
    graph = attsvm.token_graph([[0, 1, 2], [1, 0, 2]], [0, 1])
    problem = graph.training_problem(np.eye(3))
    with pytest.raises(attsvm.ProblemError, match="train_head: expected False with the token loss"):
        attsvm.train(problem, loss="token", train_head=True)
    given = {"labels": problem.labels, "queries": problem.queries, "keys": problem.keys}
    with pytest.raises(attsvm.ProblemError, match="head: expected the identity matrix with the token loss"):
        attsvm.train(attsvm.Problem(problem.tokens, head=2 * np.eye(3), **given), loss="token")
    with pytest.raises(attsvm.ProblemError, match="tokens: expected one-hot vectors"):
        attsvm.train(attsvm.Problem(problem.tokens / 2, head=np.eye(3), **given), loss="token")
    run = attsvm.train(problem, loss="token", steps=1)
    moved = attsvm.Problem(
        problem.tokens,
        head=np.eye(3),
        **{**given, "keys": problem.keys + np.arange(6).reshape(2, 3, 1)},
    )
    with pytest.raises(attsvm.ProblemError, match="keys: expected equal keys for equal tokens"):
        attsvm.predict_direction(moved, run)
    for sequences, words in (([[0], [1]], "at least two tokens"), ([[0, 1, 2]], "a position whose next token")):
        with pytest.raises(attsvm.ProblemError, match=words):
            attsvm.token_graph(sequences) if "two" in words else attsvm.next_token.causal_problem(sequences, np.eye(3))


@pytest.mark.parametrize("behind", [3.0, 3000.0])
def test_a_token_that_is_far_behind_has_its_loss_and_the_first_step_of_the_softmax_in_logarithms(behind):
    """Its attention underflows from 745 logits on; a context holds the label's token twice."""
    vocabulary = unit_vectors(np.random.default_rng(0), 4, 6)
    contexts, labels = [[0, 1, 0, 2], [1, 3, 2, 2]], [0, 3]
    problem = attsvm.token_graph(contexts, labels).training_problem(vocabulary)
    start = -behind * attsvm.solve_svm(problem, [0, 1]).direction
    run = attsvm.train(
        problem, loss="token", init=start, steps=1, optimizer=attsvm.optimizers.gradient_descent(0.01), record=[0, 1]
    )
    losses, gradient = [], np.zeros_like(start)
    for context, label in zip(contexts, labels, strict=True):
        keys, query = vocabulary[context], vocabulary[context[-1]]
        logs = scipy.special.log_softmax(keys @ start @ query)
        right = np.array(context) == label
        losses.append(-scipy.special.logsumexp(logs[right]))
        # ∂ℓ/∂s = softmax of all tokens minus that of the label's tokens
        of_label = np.exp(np.where(right, logs - logs[right].max(), -np.inf))
        gradient += np.outer((np.exp(logs) - of_label / of_label.sum()) @ keys, query) / 2
    assert run.history["loss"][0] == pytest.approx(np.mean(losses), rel=1e-13)
    assert run.weights == pytest.approx(start - 0.01 * gradient, rel=1e-13, abs=1e-13)
