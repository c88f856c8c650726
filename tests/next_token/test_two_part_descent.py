"""The step of two parts against its definition by autodiff, and its limits against independent predictions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attsvm
from attsvm.next_token import two_part_descent
from oracles.next_token import random_contexts, unit_vectors


def cyclic_instance(seed, n):
    rng = np.random.default_rng(seed)
    vocabulary = unit_vectors(rng, 6, 8)
    contexts, labels = random_contexts(rng, n, 5, 6)
    return vocabulary, contexts, labels, attsvm.token_graph(contexts, labels, num_tokens=6)


def test_a_step_is_the_projected_gradient_of_the_loss():
    vocabulary, contexts, labels, graph = cyclic_instance(0, 12)
    basis = graph.cyclic_basis(vocabulary)
    assert graph.is_cyclic

    def loss(W):
        total = 0.0
        for context, label in zip(contexts, labels, strict=True):
            logits = vocabulary[context] @ W @ vocabulary[context[-1]]
            own = jnp.array(context) == label
            total += jax.nn.logsumexp(logits) - jax.nn.logsumexp(logits, where=own)
        return total / len(contexts)

    with jax.enable_x64(True):
        evaluate = jax.jit(jax.value_and_grad(loss))
        W = np.zeros((8, 8))
        for step in range(4):
            run = two_part_descent(graph, vocabulary, steps=step, learning_rate=0.3, cyclic_learning_rate=0.7)
            value, gradient = map(np.asarray, evaluate(W))
            assert run.weights == pytest.approx(W, abs=1e-13)
            assert run.loss == pytest.approx(float(value), rel=1e-13)
            inside = np.einsum("rij,ij,rkl->kl", basis, gradient, basis)
            assert run.cyclic_gradient_norm == pytest.approx(np.linalg.norm(inside), rel=1e-9)
            outside = gradient - inside
            W = W - 0.7 * inside - 0.3 * outside / np.linalg.norm(outside)


@pytest.mark.parametrize(("seed", "n"), [(3, 6), (2, 24)])
def test_it_ends_at_the_graph_svm_and_at_the_finite_part(seed, n):
    vocabulary, _, _, graph = cyclic_instance(seed, n)
    run = two_part_descent(graph, vocabulary, steps=8_000)
    solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    finite = graph.finite_minimiser(vocabulary)
    assert graph.is_cyclic
    assert np.linalg.norm(finite.weights) > 0.1
    assert run.cyclic == pytest.approx(finite.weights, abs=1e-8)
    assert 1 - attsvm.correlation(run.weights - finite.weights, solution.direction) <= 2e-4
    assert run.loss == pytest.approx(finite.loss, abs=1e-12)  # the attention on lower components has vanished


def test_graphs_with_one_component_stall_at_the_finite_part_and_bad_arguments_are_named():
    graph = attsvm.token_graph([[0, 1], [0, 0, 1], [1, 0, 1]], [0, 1, 1])
    run = two_part_descent(graph, np.eye(2))
    assert run.status == "stalled"
    assert not run.direction_part.any()
    assert run.weights == pytest.approx(graph.finite_minimiser(np.eye(2)).weights, abs=1e-12)
    for name, value in (("steps", -1), ("learning_rate", 0.0), ("cyclic_learning_rate", np.nan)):
        with pytest.raises(attsvm.ProblemError, match=name):
            two_part_descent(graph, np.eye(2), **{name: value})
    documents = attsvm.TokenGraph.from_documents([[0, 1, 0]], length=2, num_tokens=2)
    with pytest.raises(attsvm.ProblemError, match="graph: expected contexts"):
        two_part_descent(documents, np.eye(2))
