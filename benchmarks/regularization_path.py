"""Direction errors of regularisation paths along the radii, in every norm, and the time of a path.

    python benchmarks/regularization_path.py [--seeds 10]

n = 6, T = 8, d = 10, global paths at 1 to 10,000 times the value of the optimal tokens' Att-SVM. Then joint paths of
head and prompt on the two joint examples of the first paper, where one or the other radius grows faster, and paths
inside cones around a local direction that is not the global one.
"""

import argparse
import time

import numpy as np

import attsvm
from attsvm.datasets.papers import joint_prompt, one_sequence

NORMS = ("frobenius", 1.3, 1.75, 3.0, "nuclear")
TIMES = np.array([1.0, 10.0, 100.0, 1e3, 1e4])


def norms(seeds: int) -> None:
    times = " | ".join(f"{t:g}" for t in TIMES)
    print(f"| norm | {times} | optimal tokens | largest residual | CPU seconds a path |")
    print("| --- |" + " --- |" * (len(TIMES) + 3))
    for norm in NORMS:
        errors, at_best, residual, seconds = [], 0, 0.0, []
        for seed in range(seeds):
            problem = attsvm.datasets.random_problem(6, 8, 10, seed)
            optimal = attsvm.optimal_tokens(problem)
            solution = attsvm.solve_svm(problem, optimal, norm)
            began = time.process_time()
            path = attsvm.regularization_path(problem, TIMES * solution.value, norm=norm)
            seconds.append(time.process_time() - began)
            errors.append(path.direction_errors)
            at_best += bool((path.selected[-1] == optimal).all())
            residual = max(residual, float(path.residual.max()))
        worst = " | ".join(f"{error:.1e}" for error in np.max(errors, axis=0))
        name = norm if isinstance(norm, str) else f"ℓ{norm:g}"
        print(f"| {name} | {worst} | {at_best} of {seeds} | {residual:.1e} | {np.median(seconds):.2f} |", flush=True)


def joint() -> None:
    print("\n| example | r | R | v to max-margin | p to plain | p to relaxed |")
    print("| --- | --- | --- | --- | --- | --- |")
    slow, fast = np.array([1.0, 10.0, 100.0]), np.array([1.0, 100.0, 1e4])
    for name, slack in (("every label is a support vector", False), ("one label has slack", True)):
        problem = joint_prompt(slack)
        for head_radii, radii in ((fast, slow), (slow, fast)):
            path = attsvm.regularization_path(problem, radii, head_radii=head_radii)
            selected = path.selected[-1]
            head = attsvm.solve_head(problem, selected)
            plain = attsvm.solve_svm(problem, selected)
            relaxed = attsvm.solve_svm(problem, selected, relaxed=~head.support)
            of_head = attsvm.direction_error(path.head_weights[-1], head.direction)
            ends = [attsvm.direction_error(path.weights[-1], limit.direction) for limit in (plain, relaxed)]
            print(f"| {name} | {head_radii[-1]:g} | {radii[-1]:g} | {of_head:.1e} | {ends[0]:.1e} | {ends[1]:.1e} |")


def cones() -> None:
    print("\n| least correlation | selected | norm at R = 10,000 | direction error to the local direction |")
    print("| --- | --- | --- | --- |")
    problem = one_sequence(local=True)
    local = attsvm.solve_svm(problem, np.array([1]))
    for correlation in (0.999, 0.997, 0.99, 0.9, None):
        cone = None if correlation is None else (local.direction, correlation)
        path = attsvm.regularization_path(problem, TIMES * local.value, cone=cone)
        error = attsvm.direction_error(path.weights[-1], local.direction)
        size = np.linalg.norm(path.weights[-1])
        print(f"| {correlation or 'no cone'} | {path.selected[-1, 0]} | {size:.6g} | {error:.1e} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    seeds = parser.parse_args().seeds
    norms(seeds)
    joint()
    cones()


if __name__ == "__main__":
    main()
