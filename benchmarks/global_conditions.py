"""How often gradient descent ends at the optimal tokens, with and without the conditions for it.

python benchmarks/global_conditions.py [--problems 300] [--steps 3000]
"""

import argparse

import attsvm

SIZES = ((2, 3, 8), (3, 3, 4), (2, 4, 4), (3, 4, 4), (2, 5, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    arguments = parser.parse_args()
    rule = attsvm.optimizers.normalized_gradient_descent(arguments.learning_rate)
    print("| n, T, d | condition holds | of these end globally | of the others end globally |")
    print("| --- | ---: | ---: | ---: |")
    for n, T, d in SIZES:
        problem = attsvm.datasets.random_problem(n, T, d, seed=5, batch=(arguments.problems,))
        holds = attsvm.theory.global_convergence_conditions(problem).favourable
        run = attsvm.train(problem, optimizer=rule, steps=arguments.steps, record=1)
        best = attsvm.classify(problem, run.weights).kind == "global"
        others = f"{(best & ~holds).sum()} of {(~holds).sum()}"
        print(f"| {n}, {T}, {d} | {holds.sum()} | {(best & holds).sum()} | {others} |")


if __name__ == "__main__":
    main()
