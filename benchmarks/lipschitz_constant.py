"""How tight the Lipschitz constant of the gradient is: the largest curvature that a search finds, over the constant.

python benchmarks/lipschitz_constant.py [--problems 20] [--points 2000]
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import attsvm

SIZES = ((1, 2, 2), (2, 3, 2), (3, 4, 4), (6, 8, 4))
LOSSES = {"logistic": jax.nn.softplus, "exponential": jnp.exp, "linear": lambda x: x}


def curvature(problem: attsvm.Problem, loss: str, weights: jax.Array, direction: jax.Array) -> jax.Array:
    """The second derivative of the mean loss along a direction."""

    def along(step: jax.Array) -> jax.Array:
        logits = jnp.einsum("ntd,de,ne->nt", problem.tokens, weights + step * direction, problem.queries)
        outputs = problem.labels * jnp.einsum(
            "nt,ntd,d->n", jax.nn.softmax(logits, axis=-1), problem.tokens, problem.head
        )
        return jnp.mean(LOSSES[loss](-outputs))

    return jax.grad(jax.grad(along))(0.0)


def largest(problem: attsvm.Problem, loss: str, points: int, steps: int = 300) -> float:
    """Gradient ascent on |V'HV| over weights and unit directions V, from random points."""
    d = problem.dim

    def value(both: jax.Array) -> jax.Array:
        weights, direction = both
        return jnp.abs(curvature(problem, loss, weights, direction / jnp.linalg.norm(direction)))

    @jax.jit
    def ascend(both: jax.Array) -> jax.Array:
        def step(k: int, both: jax.Array) -> jax.Array:
            slope = jax.vmap(jax.grad(value))(both)
            size = jnp.sqrt(jnp.sum(slope**2, axis=(-2, -1), keepdims=True)) + 1e-300
            moved = both + 0.3 / (1 + k / 30) * slope / size
            return moved

        return jax.vmap(value)(jax.lax.fori_loop(0, steps, step, both))

    generator = np.random.default_rng(0)
    start = generator.standard_normal((points, 2, d, d)) * np.array([4.0, 1.0])[:, None, None]
    return float(np.max(ascend(start)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--points", type=int, default=200)
    arguments = parser.parse_args()
    print("| n, T, d | loss | found over constant | the papers' constant over ours |")
    print("| --- | --- | ---: | ---: |")
    for n, T, d in SIZES:
        problems = attsvm.datasets.random_problem(n, T, d, seed=7, batch=(arguments.problems,))
        for loss in LOSSES:
            ratios, published = [], []
            for i in range(arguments.problems):
                problem = problems[i]
                constant = attsvm.theory.lipschitz_constant(problem, loss)
                with jax.enable_x64(True):
                    ratios.append(largest(problem, loss, arguments.points) / constant)
                slope, bend = {
                    "logistic": (1.0, 0.25),
                    "exponential": (np.exp(-attsvm.scores(problem).min()),) * 2,
                    "linear": (1.0, 0.0),
                }[loss]
                sizes = np.linalg.norm(problem.tokens, ord=2, axis=(-2, -1))
                lengths = np.linalg.norm(problem.queries, axis=-1)
                head = np.linalg.norm(problem.head)
                published.append(np.mean(head * lengths**2 * sizes**3 * (bend * head * sizes + 3 * slope)) / constant)
            low, middle, high = np.quantile(ratios, [0, 0.5, 1])
            print(f"| {n}, {T}, {d} | {loss} | {middle:.2f} ({low:.2f} to {high:.2f}) | {np.median(published):.0f} |")


if __name__ == "__main__":
    main()
