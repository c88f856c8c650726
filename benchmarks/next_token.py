"""Measure next-token prediction: the time of graphs and graph-SVMs, and where training on acyclic graphs ends.

    python benchmarks/next_token.py sizes
    python benchmarks/next_token.py dimensions
    python benchmarks/next_token.py acyclic [--instances 20] [--steps 40000]
    python benchmarks/next_token.py cyclic [--instances 20] [--steps 20000]

Times are process times on one thread.
"""

import argparse
import os
import resource
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import cvxpy as cp  # noqa: E402
import numpy as np  # noqa: E402

import attsvm  # noqa: E402
from attsvm.next_token import two_part_descent  # noqa: E402

LENGTH = 0.1


def unit_vectors(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    vectors = rng.standard_normal((count, dim))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class Clock:
    """Prints the process time of what was done since the last line."""

    def __init__(self) -> None:
        self.start = time.process_time()

    def line(self, name: str, result: object) -> None:
        """Print a line, and start again."""
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{name:34s} {time.process_time() - self.start:7.2f} s   peak {memory:.2f} GiB   {result}", flush=True)
        self.start = time.process_time()


def ordered_contexts(rng: np.random.Generator, K: int, n: int, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Contexts of different tokens; the label is a token of the highest of K/2 levels, which hold two tokens each."""
    level = np.stack([rng.permutation(K) // 2 for _ in range(K)])
    contexts = np.stack([rng.permutation(K)[:T] for _ in range(n)])
    own = np.take_along_axis(level[contexts[:, -1]], contexts, axis=1)
    highest = own == own.max(axis=1, keepdims=True)
    return contexts, np.take_along_axis(contexts, np.argmax(highest * rng.uniform(size=own.shape), axis=1)[:, None], 1)[
        :, 0
    ]


def sizes() -> None:
    """A graph of 100,000 contexts over 50 tokens, solved, and a graph of 10⁷ tokens of documents."""
    rng = np.random.default_rng(4)
    contexts, labels = ordered_contexts(rng, 50, 100_000, 8)
    vocabulary = unit_vectors(rng, 50, 64)
    clock = Clock()
    graph = attsvm.token_graph(contexts, labels)
    clock.line("graph of 100,000 contexts", graph)
    problem = graph.problem(vocabulary)
    clock.line("its problem", problem)
    solution = attsvm.solve_svm(problem, graph.selected)
    clock.line("graph-SVM, d = 64", f"{solution.status}, gap {solution.gap:.1e}, {solution.stats['method']}")
    finite = graph.finite_minimiser(vocabulary)
    clock.line("finite part", f"{finite.status}, gradient {finite.gradient_norm:.1e}")
    graph.predict(contexts[:10_000], vocabulary, solution=solution, finite=finite)
    clock.line("prediction of 10,000 contexts", "")
    documents = (rng.integers(200, size=10_000) for _ in range(1_000))
    clock.line(
        "graph of 10⁷ tokens, 32 a context", attsvm.TokenGraph.from_documents(documents, length=32, num_tokens=200)
    )


def dimensions() -> None:
    """Graph-SVMs of 30 tokens around the dimension from which on they can be solved: about 1,100 pairs."""
    for dim in range(16, 21):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            graph = attsvm.token_graph(*ordered_contexts(rng, 30, 400, 8))
            problem = graph.problem(unit_vectors(rng, 30, dim))
            clock = Clock()
            solution = attsvm.solve_svm(problem, graph.selected)
            clock.line(f"graph-SVM, d = {dim}, seed {seed}", f"{solution.status}, {solution.stats['method']}")


def least_norm(graph: attsvm.TokenGraph, vocabulary: np.ndarray) -> float:
    """The value of the graph-SVM by CVXPY, with every edge as a constraint."""
    W = cp.Variable((vocabulary.shape[1],) * 2)
    rows = [(vocabulary[y] - vocabulary[t]) @ W @ vocabulary[k] for k, y, t in graph.edges.tolist()]
    constraints = [row == 0 if tied else row >= 1 for row, tied in zip(rows, graph.contradictory, strict=True)]
    problem = cp.Problem(cp.Minimize(cp.norm(W, "fro")), constraints)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


def acyclic(instances: int, steps: int) -> None:
    """Correlation of trained weights with the graph-SVM at the published size: n = 6, T = 4, K = 6, d = 8."""
    rng = np.random.default_rng(2)
    missing, values, gaps = [], [], []
    while len(missing) < instances:
        vocabulary = unit_vectors(rng, 6, 8)
        contexts = [rng.permutation(6)[:4] for _ in range(6)]
        graph = attsvm.token_graph(contexts, [rng.choice(context) for context in contexts], num_tokens=6)
        if graph.is_cyclic:
            continue
        solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
        optimizer = attsvm.optimizers.normalized_gradient_descent(LENGTH)
        run = attsvm.train(graph.training_problem(vocabulary), loss="token", optimizer=optimizer, steps=steps)
        missing.append(1 - attsvm.correlation(run.weights, solution.direction))
        values.append(abs(least_norm(graph, vocabulary) / solution.value - 1))
        gaps.append(solution.gap)
    print(f"{instances} acyclic instances, {steps:,} normalised steps of length {LENGTH}")
    print(f"1 − correlation: median {np.median(missing):.1e}, largest {max(missing):.1e}")
    print(f"graph-SVM: largest gap {max(gaps):.1e}, largest relative difference to CVXPY {max(values):.1e}")


def cyclic(instances: int, steps: int) -> None:
    """Weights of the step of two parts, on cyclic graphs of the published size and of four times the contexts."""
    for n, seed in ((6, 1), (24, 11)):
        rng = np.random.default_rng(seed)
        missing, of_finite, sizes_of_finite = [], [], []
        start = time.process_time()
        while len(missing) < instances:
            vocabulary = unit_vectors(rng, 6, 8)
            contexts = [rng.permutation(6)[:4] for _ in range(n)]
            graph = attsvm.token_graph(contexts, [rng.choice(context) for context in contexts], num_tokens=6)
            if not graph.is_cyclic:
                continue
            solution = attsvm.solve_svm(graph.problem(vocabulary), graph.selected)
            finite = graph.finite_minimiser(vocabulary).weights
            run = two_part_descent(graph, vocabulary, steps=steps, learning_rate=LENGTH)
            missing.append(1 - attsvm.correlation(run.weights - finite, solution.direction))
            of_finite.append(np.linalg.norm(run.cyclic - finite))
            sizes_of_finite.append(np.linalg.norm(finite))
        print(f"n = {n}: {instances} cyclic instances, {steps:,} steps, {time.process_time() - start:.1f} s")
        print(f"1 − correlation of W − W_fin: median {np.median(missing):.1e}, largest {max(missing):.1e}")
        print(f"distance of the cyclic part to W_fin: median {np.median(of_finite):.1e}, largest {max(of_finite):.1e}")
        print(f"norm of W_fin: median {np.median(sizes_of_finite):.2f}, largest {max(sizes_of_finite):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sizes", "dimensions", "acyclic", "cyclic"])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--steps", type=int, help="By default 40,000 for acyclic graphs and 20,000 for cyclic ones.")
    arguments = parser.parse_args()
    if arguments.what == "sizes":
        sizes()
    elif arguments.what == "dimensions":
        dimensions()
    elif arguments.what == "acyclic":
        acyclic(arguments.instances, arguments.steps or 40_000)
    else:
        cyclic(arguments.instances, arguments.steps or 20_000)


if __name__ == "__main__":
    main()
