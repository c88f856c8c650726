"""The limit of training (K, Q) when each factor's gradient is normalised separately, and the equations that it solves.

    python benchmarks/per_factor_normalization.py [--seeds 20]

Prints the tables of docs/notes/per_factor_normalization.md. n = 6, T = 8, d = 10. The direction error is that of KQ' to
the nuclear Att-SVM of the tokens that the run selects at the end.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm import optimizers
from attsvm.papers.figures.optimizer_norms import problems
from attsvm.training.trials import num_threads

STEPS = 80_000
SMOOTH_STEPS = 200_000
LIVE = 1e-2
"""Singular values of KQ' above this fraction of the first belong to directions that have not vanished."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    problem = problems(6, 8, 10, parser.parse_args().seeds)
    print(f"{problem.batch_shape[0]} seeds, {num_threads()} threads")
    annealed = normalisations(problem)
    starts(problem, annealed["all"])
    equations(problem, annealed["each"])


def normalisations(problem: attsvm.Problem) -> dict[str, attsvm.Run]:
    """Compare both normalisations with three kinds of steps; return the runs with annealed steps."""
    print("\n| steps | normalised | direction error: median, largest | margin ratio: mean | imbalance: median |")
    print("| --- | --- | --- | --- | --- |")
    generator = np.random.default_rng(0)
    init = tuple(generator.standard_normal((*problem.batch_shape, 10, 10)) for _ in range(2))
    found = {}
    for kind, make, steps in (
        ("constant, 0.1", constant, 50_000),
        ("at most about one logit each", smooth, SMOOTH_STEPS),
        ("1e-2 to 1e-4 of the norms", annealing, STEPS),
    ):
        for scope in ("each", "all"):
            run = train(problem, make(scope), steps, init)
            error, ratio = to_nuclear(problem, run)
            print(
                f"| {kind} | {'per factor' if scope == 'each' else 'jointly'} | {np.median(error):.1e}, "
                f"{error.max():.1e} | {ratio.mean():.4f} | {np.median(imbalance(run)):.1e} |",
                flush=True,
            )
            if kind.endswith("norms"):
                found[scope] = run
    return found


def starts(problem: attsvm.Problem, joint: attsvm.Run) -> None:
    """Normalise per factor from points near the nuclear solution, and compare the limits of several starts."""
    nuclear = attsvm.solve_svm(problem, joint.selected, "nuclear")
    left, values, right = np.linalg.svd(nuclear.direction)
    balanced = left * np.sqrt(values)[:, None, :], np.swapaxes(right, -1, -2) * np.sqrt(values)[:, None, :]
    print("\n| per factor, from the nuclear solution | steps | runs that keep the selection | direction error |")
    print("| --- | --- | --- | --- |")
    ends = []
    for kind, make, steps, noise, skewed, seed in (
        ("and noise of 0.001", smooth, SMOOTH_STEPS, 1e-3, False, 0),
        ("and noise of 0.001", annealing, STEPS, 1e-3, False, 0),
        ("and noise of 0.1", annealing, STEPS, 0.1, False, 1),
        ("factors skewed, noise of 0.01", annealing, STEPS, 0.01, True, 2),
    ):
        generator = np.random.default_rng(seed)
        K, Q = (100 * (x + noise * generator.standard_normal(x.shape)) for x in balanced)
        if skewed:
            change = np.eye(10) + 0.2 * generator.standard_normal((10, 10))
            K, Q = K @ change, Q @ np.linalg.inv(change).T
        run = train(problem, make("each"), steps, (K, Q))
        kept = (run.selected == joint.selected).all(axis=-1)
        error, _ = to_nuclear(problem, run)
        named = "smooth" if make is smooth else "annealed"
        print(
            f"| {kind} | {named} | {kept.sum()} of {kept.size} | "
            f"{error[kept].min():.1e} to {error[kept].max():.1e}, median {np.median(error[kept]):.1e} |",
            flush=True,
        )
        if make is annealing:
            ends.append((run, kept))
    apart = np.stack(
        [
            np.where(kept & also, attsvm.direction_error(one.weights, other.weights, axis=(-2, -1)), np.nan)
            for i, (one, kept) in enumerate(ends)
            for other, also in ends[:i]
        ]
    )
    far = ", ".join(f"{seed} ({np.nanmax(apart[:, seed]):.0e})" for seed in np.flatnonzero((apart > 1e-5).any(axis=0)))
    print(
        f"\nAnnealed runs from different starts that select the same tokens: {np.isfinite(apart).sum()} pairs, "
        f"direction error between their ends {np.nanmedian(apart):.1e} in the median; above 1e-5 on seeds "
        f"{far or 'none'}."
    )


def equations(problem: attsvm.Problem, run: attsvm.Run) -> None:
    """Solve for the rotating equilibrium by Newton's method, starting from the end of the run."""
    columns = [
        "seed",
        "rank",
        "tokens",
        "residual",
        "run to it",
        "nuclear to it",
        "largest Ω",
        "least f",
        "slack",
        "growth",
    ]
    print(f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for seed in range(problem.batch_shape[0]):
        rows = constraint_rows(problem[seed], run.selected[seed])
        K, Q = (x[seed] / np.linalg.norm(x[seed]) for x in (run.parameters["K"], run.parameters["Q"]))
        K, Q = live_part(K, Q)
        frequency = visited(rows, K, Q)
        kept, slack = frequency > 1e-4, -1.0
        for _ in range(5):
            solution = equilibrium(rows[0][kept], rows[1][kept], K, Q, frequency[kept] / frequency[kept].sum())
            margins = np.einsum("rk,rk->r", rows[0] @ solution["K"], rows[1] @ solution["Q"])
            slack = margins[~kept].min() / solution["margin"] - 1
            if slack >= 0:
                break
            # this margin is the smallest so rarely that it was not counted
            kept = kept | (margins <= margins[~kept].min())
        weights = solution["K"] @ solution["Q"].T
        nuclear = attsvm.solve_svm(problem[seed], run.selected[seed], "nuclear").direction
        from_run, from_nuclear = (attsvm.direction_error(x, weights) for x in (run.weights[seed], nuclear))
        print(
            f"| {seed} | {K.shape[1]} | {kept.sum()} | {solution['residual']:.0e} | {from_run:.1e} | "
            f"{from_nuclear:.1e} | {np.abs(solution['rotation']).max():.1e} | {solution['f'].min():.1e} | "
            f"{slack:.1e} | {growth(rows[0][kept], rows[1][kept], solution):.0e} |",
            flush=True,
        )


def constant(scope: str) -> Any:
    return optimizers.normalized_gradient_descent(0.1, scope=scope)


def smooth(scope: str) -> Any:
    """Steps of about 1/‖K‖: each logit, a product of the two factors, changes by about 1 at most."""
    factor = 1.0 if scope == "each" else np.sqrt(2.0)
    return optimizers.normalized_gradient_descent(lambda k: 3 * factor / jnp.sqrt(100 + 6 * k), scope=scope)


def annealing(scope: str) -> Any:
    def learning_rate(k: Any) -> Any:
        return jnp.select([k < STEPS / 4, k < STEPS / 2, k < 3 * STEPS / 4], [1e-2, 3e-3, 1e-3], 1e-4)

    return optimizers.normalized_gradient_descent(learning_rate, scope=scope, relative=True)


def train(problem: attsvm.Problem, optimizer: Any, steps: int, init: Any) -> attsvm.Run:
    return attsvm.train(problem, attention="factored", optimizer=optimizer, steps=steps, init=init, record=1)


def to_nuclear(problem: attsvm.Problem, run: attsvm.Run) -> tuple[np.ndarray, np.ndarray]:
    solution = attsvm.solve_svm(problem, run.selected, "nuclear")
    error = attsvm.direction_error(run.weights, solution.direction, axis=(-2, -1))
    return np.asarray(error), np.asarray(attsvm.margin_ratio(problem, run.weights, run.selected, "nuclear"))


def imbalance(run: attsvm.Run) -> np.ndarray:
    """‖K'K − Q'Q‖/‖K'K‖ with both factors of norm 1; gradient flow of the loss keeps K'K − Q'Q as it is."""
    grams = []
    for x in (run.parameters["K"], run.parameters["Q"]):
        unit = x / np.linalg.norm(x, axis=(-2, -1), keepdims=True)
        grams.append(np.swapaxes(unit, -1, -2) @ unit)
    return np.linalg.norm(grams[0] - grams[1], axis=(-2, -1)) / np.linalg.norm(grams[0], axis=(-2, -1))


def constraint_rows(problem: attsvm.Problem, selected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """a_i and z_i of each margin a_i' K Q' z_i."""
    assert problem.queries is not None
    pairs = [
        (problem.tokens[i, selected[i]] - token, problem.queries[i])
        for i in range(len(selected))
        for t, token in enumerate(problem.tokens[i])
        if t != selected[i]
    ]
    return np.array([a for a, _ in pairs]), np.array([z for _, z in pairs])


def live_part(K: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors in coordinates of the directions that have not vanished."""
    values = np.linalg.svd(K @ Q.T, compute_uv=False)
    basis = np.linalg.svd(np.concatenate([K, Q]))[2][: int((values > LIVE * values[0]).sum())].T
    return K @ basis, Q @ basis


def visited(rows: tuple[np.ndarray, np.ndarray], K: np.ndarray, Q: np.ndarray, steps: int = 30_000) -> np.ndarray:
    """How often each margin is the smallest, in steps of 1e-4 on unit factors that follow this margin alone."""
    a, z = rows
    counts = np.zeros(len(a))
    for _ in range(steps):
        i = np.einsum("rk,rk->r", a @ K, z @ Q).argmin()
        counts[i] += 1
        of_K, of_Q = np.outer(a[i], Q.T @ z[i]), np.outer(z[i], K.T @ a[i])
        K, Q = K + 1e-4 * of_K / np.linalg.norm(of_K), Q + 1e-4 * of_Q / np.linalg.norm(of_Q)
        K, Q = K / np.linalg.norm(K), Q / np.linalg.norm(Q)
    return counts / steps


def equilibrium(a: np.ndarray, z: np.ndarray, K: np.ndarray, Q: np.ndarray, f: np.ndarray) -> dict[str, Any]:
    """Solve K(c + Ω) = Σ f_i u_i, Q(c' + Ω) = Σ f_i w_i, u_i and w_i the unit gradients of margin i; equal margins.

    Gauss-Newton with minimal steps, since K and Q are free up to a common rotation.
    """
    rank = K.shape[1]
    above = np.triu_indices(rank, 1)
    parts = {"K": K, "Q": Q, "f": f, "Ω": np.zeros(len(above[0])), "c": np.full(2, 0.3), "margin": np.zeros(1)}
    parts["margin"][:] = np.einsum("rk,rk->r", a @ K, z @ Q).min()
    flat, unflatten = jax.flatten_util.ravel_pytree(parts)

    def residual(flat: Any) -> Any:
        x = unflatten(flat)
        rotation = jnp.zeros((rank, rank)).at[above].set(x["Ω"])
        rotation = rotation - rotation.T
        with_Q, with_K = z @ x["Q"], a @ x["K"]
        to_K = x["f"] / (np.linalg.norm(a, axis=1) * jnp.linalg.norm(with_Q, axis=1))
        to_Q = x["f"] / (np.linalg.norm(z, axis=1) * jnp.linalg.norm(with_K, axis=1))
        return jnp.concatenate(
            [
                (x["K"] @ (x["c"][0] * jnp.eye(rank) + rotation) - (a * to_K[:, None]).T @ with_Q).ravel(),
                (x["Q"] @ (x["c"][1] * jnp.eye(rank) + rotation) - (z * to_Q[:, None]).T @ with_K).ravel(),
                jnp.sum(with_K * with_Q, axis=1) - x["margin"],
                jnp.array([jnp.sum(x["f"]) - 1, jnp.sum(x["K"] ** 2) - 1, jnp.sum(x["Q"] ** 2) - 1]),
            ]
        )

    slope: Callable[[Any], Any] = jax.jit(jax.jacfwd(residual))
    flat = np.asarray(flat)
    for _ in range(20):
        flat = flat - np.linalg.lstsq(np.asarray(slope(flat)), np.asarray(residual(flat)), rcond=1e-10)[0]
    solved = {name: np.asarray(x) for name, x in unflatten(jnp.asarray(flat)).items()}
    size = float(jnp.abs(residual(flat)).max())
    return {**solved, "rotation": solved["Ω"], "margin": float(solved["margin"][0]), "residual": size}


def growth(a: np.ndarray, z: np.ndarray, solution: dict[str, Any]) -> float:
    """Growth of the fastest direction relative to the factors, per unit of relative step; 0 for those in use."""
    to_K = solution["f"] / (np.linalg.norm(a, axis=1) * np.linalg.norm(z @ solution["Q"], axis=1))
    to_Q = solution["f"] / (np.linalg.norm(z, axis=1) * np.linalg.norm(a @ solution["K"], axis=1))
    for_K, for_Q = (a * to_K[:, None]).T @ z, (z * to_Q[:, None]).T @ a
    c, own = solution["c"], np.eye(len(for_K))
    return float(np.linalg.eigvals(np.block([[-c[0] * own, for_K], [for_Q, -c[1] * own]])).real.max())


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
