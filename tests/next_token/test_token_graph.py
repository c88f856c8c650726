"""The token-priority graph against NetworkX, its Att-SVM against CVXPY, and the finite part against its definition."""

import itertools

import cvxpy as cp
import jax
import networkx as nx
import numpy as np
import pytest
import scipy

import attsvm
from attsvm.next_token.contexts import of_documents
from attsvm.next_token.priorities import Priorities
from oracles.next_token import random_contexts, unit_vectors


def edges_by_definition(contexts, labels):
    return sorted({(s[-1], y, t) for s, y in zip(contexts, labels, strict=True) if y in s for t in s if t != y})


def test_components_levels_and_covers_are_those_of_networkx():
    rng = np.random.default_rng(0)
    for _ in range(1_000):
        N = int(rng.integers(1, 13))
        edges = np.unique(rng.integers(N, size=(rng.integers(0, 2 * N), 2)), axis=0)
        edges = edges[edges[:, 0] != edges[:, 1]]
        graph = nx.DiGraph(edges.tolist())
        graph.add_nodes_from(range(N))
        found = Priorities.of(N, edges)

        def number(members, found=found):
            (component,) = {int(found.component[i]) for i in members}
            return component

        condensed = nx.condensation(graph)
        names = {c: number(condensed.nodes[c]["members"]) for c in condensed}
        assert sorted(names.values()) == list(range(len(found.level)))
        own = nx.relabel_nodes(condensed, names)
        levels = {c: depth for depth, layer in enumerate(nx.topological_generations(own)) for c in layer}
        assert found.level.tolist() == [levels[c] for c in range(len(levels))]
        assert sorted(map(tuple, found.covers().tolist())) == sorted(nx.transitive_reduction(own).edges)
        below, place = found.below(), found.places()
        for a, b in itertools.permutations(own, 2):
            if nx.has_path(own, a, b):
                assert below[a] >> int(place[b]) & 1
            elif nx.has_path(own.to_undirected(as_view=True), a, b):
                assert not below[a] >> int(place[b]) & 1


def every_edge(graph, vocabulary):
    """The graph-SVM as published: each edge is a constraint."""
    W = cp.Variable((vocabulary.shape[1],) * 2)
    constraints = []
    for (last, label, other), tied in zip(graph.edges.tolist(), graph.contradictory, strict=True):
        difference = (vocabulary[label] - vocabulary[other]) @ W @ vocabulary[last]
        constraints.append(difference == 0 if tied else difference >= 1)
    problem = cp.Problem(cp.Minimize(cp.norm(W, "fro")), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return problem, W.value


@pytest.mark.parametrize("seed", range(6))
def test_the_graph_svm_is_that_of_every_edge(seed):
    rng = np.random.default_rng(seed)
    num_tokens, n = [(6, 6), (6, 24), (9, 12)][seed % 3]
    contexts, labels = random_contexts(rng, n, 5, num_tokens)
    vocabulary = unit_vectors(rng, num_tokens, num_tokens + 2)
    graph = attsvm.token_graph(contexts, labels, num_tokens=num_tokens)
    assert list(map(tuple, graph.edges.tolist())) == edges_by_definition(contexts, labels)
    solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    oracle, weights = every_edge(graph, vocabulary)
    assert solution.status == "optimal"
    assert solution.gap <= 1e-10
    # CVXPY's tolerance of 1e-10 in its objective leaves its square root in the weights
    assert np.linalg.norm(solution.direction - weights) <= 1e-5 * np.linalg.norm(weights)
    assert solution.value == pytest.approx(oracle.value, rel=1e-7)
    # the direction does not move tokens of one component
    basis = graph.cyclic_basis(vocabulary)
    assert np.abs(np.einsum("rij,ij->r", basis, solution.direction)).max(initial=0) <= 1e-10 * solution.value
    assert np.einsum("rij,sij->rs", basis, basis) == pytest.approx(np.eye(len(basis)), abs=1e-12)


@pytest.mark.parametrize("dim", [8, 4])
def test_the_finite_part_has_the_least_loss_on_the_cyclic_subspace(dim):
    rng = np.random.default_rng(5)
    contexts, labels = random_contexts(rng, 60, 6, 6)
    vocabulary = unit_vectors(rng, 6, dim)
    graph = attsvm.token_graph(contexts, labels)
    found = graph.finite_minimiser(vocabulary)
    basis = graph.cyclic_basis(vocabulary)
    assert graph.is_cyclic
    assert found.status == "converged"
    inside = np.einsum("rij,ij->r", basis, found.weights)
    assert np.einsum("r,rij->ij", inside, basis) == pytest.approx(found.weights, abs=1e-9)

    component = {(k, t): (k, c) for k in range(6) for c, tokens in enumerate(graph.components(k)) for t in tokens}

    def loss(coefficients):
        """The mean over contexts of −log of the attention on the label within its component, from the definition."""
        W, total = np.einsum("r,rij->ij", coefficients, basis), 0.0
        for context, label in zip(contexts, labels, strict=True):
            last = context[-1]
            own = [
                t
                for t in context
                if t == label or ((last, t) in component and component[last, t] == component.get((last, label)))
            ]
            logits = vocabulary[own] @ W @ vocabulary[last]
            on_label = logits[np.array(own) == label]
            total += np.logaddexp.reduce(logits) - np.logaddexp.reduce(on_label)
        return total / len(contexts)

    assert loss(inside) == pytest.approx(found.loss, abs=1e-14)
    gradient = scipy.optimize.approx_fprime(inside, loss, 1e-6)
    assert np.abs(gradient).max() < 1e-5  # forward differences with this step
    for _ in range(20):  # the loss is convex there: a minimum has a larger loss on both sides of it
        direction = rng.standard_normal(len(basis))
        assert loss(inside + 1e-3 * direction) > found.loss
        assert loss(inside - 1e-3 * direction) > found.loss


def test_the_shares_of_contradictory_tokens_do_not_depend_on_the_lengths_of_their_vectors():
    rng = np.random.default_rng(0)
    contexts = [[0, 1, 2]] * 3 + [[1, 0, 2]] + [[3, 4, 5]] * 3 + [[4, 3, 5]]
    graph = attsvm.token_graph(contexts, [0, 0, 0, 1, 3, 3, 3, 4])
    for _ in range(20):
        vocabulary = unit_vectors(rng, 6, 7) * 10 ** rng.uniform(-2, 2, (6, 1))
        assert len(graph.cyclic_basis(vocabulary)) == 2
        kept = graph.predict([[0, 1, 2], [4, 3, 5]], vocabulary)
        # three contexts of four ask for the first token; products of weights with long vectors round by 1e-10
        assert kept.probabilities == pytest.approx(np.array([[0.75, 0.25, 0], [0.25, 0.75, 0]]), abs=1e-9)
        assert kept.status == "optimal"


def test_what_it_predicts_is_the_attention_of_long_weights():
    rng = np.random.default_rng(2)
    contexts, labels = random_contexts(rng, 30, 5, 6)
    vocabulary = unit_vectors(rng, 6, 8)
    graph = attsvm.token_graph(contexts, labels)
    solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    finite = graph.finite_minimiser(vocabulary)
    asked = [*contexts, *[rng.permutation(6)[:4].tolist() for _ in range(20)]]
    found = graph.predict(asked, vocabulary, solution=solution, finite=finite)
    # e^{-60} is below rounding, and the margin of tokens that the graph does not order is larger than 1e-3 here
    W = 60_000 * solution.direction + finite.weights
    for context, ordered, kept, probabilities in zip(
        asked, found.ordered, found.kept, found.probabilities, strict=True
    ):
        attention = scipy.special.softmax(vocabulary[context] @ W @ vocabulary[context[-1]])
        assert probabilities[: len(context)] == pytest.approx(attention, abs=1e-9)
        assert not kept[len(context) :].any()
        edges = {(y, t) for k, y, t in graph.edges.tolist() if k == context[-1]}
        paths = nx.transitive_closure(nx.DiGraph(edges)) if edges else nx.DiGraph()
        top = {t for t, keep in zip(context, kept, strict=False) if keep}
        assert ordered == all(
            a in paths and b in paths and paths.has_edge(a, b) and ((b in top) == paths.has_edge(b, a))
            for a in top
            for b in set(context)
            if a != b
        ) or (len(set(context)) == 1)
    assert found.ordered[: len(contexts)].all()


def test_a_graph_of_documents_is_that_of_its_contexts():
    rng = np.random.default_rng(3)
    documents = [rng.integers(7, size=length).tolist() for length in (0, 1, 2, 30, 5, 400)]
    length = 6
    contexts = [d[max(0, i - length + 1) : i + 1] for d in documents for i in range(len(d) - 1)]
    labels = [d[i + 1] for d in documents for i in range(len(d) - 1)]
    for positions in (1_000_000, 60):  # documents that fit into one part, and that do not
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("attsvm.next_token.contexts.POSITIONS", positions)
            graph = attsvm.TokenGraph.from_documents(documents, length=length, num_tokens=7)
            parts = list(of_documents(documents, length))
        assert list(map(tuple, graph.edges.tolist())) == edges_by_definition(contexts, labels)
        assert graph.num_contexts == len(contexts)
        assert graph.num_dropped == sum(y not in s for s, y in zip(contexts, labels, strict=True))
        found = [s.tolist() for part in parts for s in np.split(part.ids, part.offsets[1:-1])]
        assert sorted(found) == sorted(contexts)
    # without marks for every possible edge, as with a large vocabulary
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attsvm.next_token.contexts.DENSE", 0)
        assert (attsvm.TokenGraph.from_documents(documents, length=length, num_tokens=7).edges == graph.edges).all()


def test_contexts_without_their_label_are_dropped_with_a_warning():
    with pytest.warns(UserWarning, match="1 of 2 contexts do not contain their next token"):
        graph = attsvm.token_graph([[0, 1], [1, 2]], [1, 0])
    assert graph.num_dropped == 1
    assert graph.edges.tolist() == [[1, 1, 0]]


@pytest.mark.parametrize(
    ("sequences", "labels", "words"),
    [
        ([], [], "sequences: expected at least one sequence, got none"),
        ([[0], []], [0, 0], "sequences: expected at least one token in each, got none at index 1"),
        ([[0.5, 1.0]], [0], r"sequences\[0\]: expected integers on one axis, got float64"),
        ([[0, -1]], [0], r"sequences\[0\]: expected token numbers >= 0, got -1"),
        ([[0, 1]], [0, 1], "next_tokens: expected 1, one for each sequence, got 2"),
    ],
)
def test_bad_contexts_are_named(sequences, labels, words):
    with pytest.raises(attsvm.ProblemError, match=words):
        attsvm.token_graph(sequences, labels)


def test_bad_vocabularies_and_graphs_without_edges_are_named():
    graph = attsvm.token_graph([[0, 1, 2]], [1])
    with pytest.raises(attsvm.ProblemError, match=r"vocabulary: expected shape \(3, d\), got \(2, 2\)"):
        graph.problem(np.eye(2))
    with pytest.raises(attsvm.ProblemError, match="vocabulary: expected finite numbers"):
        graph.problem(np.full((3, 3), np.nan))
    with pytest.raises(attsvm.ProblemError, match="graph: expected at least one edge"):
        attsvm.token_graph([[1, 1]], [1]).problem(np.eye(2))
    with pytest.raises(attsvm.ProblemError, match="num_tokens: expected more than the largest token number, 2, got 2"):
        attsvm.token_graph([[0, 1, 2]], [1], num_tokens=2)
    documents = attsvm.TokenGraph.from_documents([[0, 1, 2, 0, 1, 0, 2, 1]], length=3, num_tokens=3)
    assert documents.is_cyclic
    with pytest.raises(attsvm.ProblemError, match="sequences: expected the contexts, because a graph of documents"):
        documents.finite_minimiser(np.eye(3))
    with pytest.raises(attsvm.ProblemError, match="sequences: expected the contexts of the graph"):
        documents.finite_minimiser(np.eye(3), [[0, 1, 2]], [0])
    with pytest.raises(attsvm.ProblemError, match="num_tokens: expected an integer from 1 to 2000000"):
        attsvm.token_graph([[3_000_000, 1, 2]], [1])
    # the first token is between the two others
    with pytest.raises(attsvm.ProblemError, match="graph: expected an order that some weights can give"):
        graph.predict([[0, 1]], np.array([[1.0], [0.0], [-1.0]]))


def test_the_slope_of_the_token_loss_is_its_derivative():
    rng = np.random.default_rng(0)
    shares, labels = rng.uniform(0.01, 1, (2, 3, 4, 5)), rng.integers(4, size=(2, 3, 5)).astype(float)
    loss = attsvm.losses.TokenLoss()
    with jax.enable_x64(True):
        slope = loss.slope(shares, labels)
        derivative = np.asarray(jax.grad(lambda f: loss.values(f, labels).sum())(shares))
    found = np.asarray(slope.direction) * np.exp(np.asarray(slope.log_slope))[:, :, None]
    assert found == pytest.approx(derivative, rel=1e-14)


@pytest.mark.optimized
def test_training_on_an_acyclic_graph_ends_at_the_graph_svm():
    rng = np.random.default_rng(2)
    contexts, _ = random_contexts(rng, 6, 4, 6)
    graph = attsvm.token_graph(contexts, [max(context) for context in contexts])
    assert len(graph.edges)
    assert not graph.is_cyclic
    vocabulary = unit_vectors(rng, 6, 8)
    solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
    optimizer = attsvm.optimizers.normalized_gradient_descent(0.1)
    run = attsvm.train(graph.training_problem(vocabulary), loss="token", optimizer=optimizer, steps=20_000)
    # the published correlations are 0.976 to 0.993, on cyclic graphs
    assert 1 - attsvm.correlation(run.weights, solution.direction) < 1e-5
