"""Measure next-token prediction: the time of graphs and graph-SVMs.

    python benchmarks/next_token.py sizes
    python benchmarks/next_token.py dimensions

Times are process times on one thread.
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import resource
import time

import numpy as np

import attsvm


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sizes", "dimensions"])
    {"sizes": sizes, "dimensions": dimensions}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
