"""No selection before step k: runs of each optimiser against the bound of ``attsvm.theory.earliest_selection``.

    python benchmarks/earliest_selection.py [--runs 10000] [--optimizers sign spectral]

n = 6, T = 8, d = 10, random problems in batches of 200. A run is early if it gives all its final tokens the attention
0.99 before the bound for all of them, and a query if it does so before its own bound. There must be none.
"""

import argparse

import numpy as np

from attsvm.papers.figures.earliest_selection import OPTIMIZERS, first_steps, ratios

BATCH, STEPS, SIZES = 200, 500, (6, 8, 10)


def main(runs: int, optimizers: list[str]) -> None:
    batches = -(-runs // (BATCH * len(optimizers)))
    total = early = 0
    worst = 0.0
    print("| optimiser | runs | select within 500 steps | early runs | early queries | run, actual/bound | query |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in optimizers:
        each = [first_steps(name, BATCH, STEPS, *SIZES, seed) for seed in range(batches)]
        found = {key: np.concatenate([one[key] for one in each]) for key in each[0]}
        early_runs, early_queries = (
            int((found[actual] < found[bound]).sum())
            for actual, bound in (("of_all", "all_bound"), ("of_query", "query_bound"))
        )
        of_runs = np.quantile(ratios(found["of_all"], found["all_bound"]), [0.1, 0.5, 0.9])
        of_queries = np.quantile(ratios(found["of_query"], found["query_bound"]), [0.1, 0.5, 0.9])
        number = len(found["of_all"])
        total, early, worst = total + number, early + early_runs + early_queries, max(worst, of_runs[1])
        texts = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in (of_runs, of_queries)]
        selected = int(np.isfinite(found["of_all"]).sum())
        print(
            f"| {name} | {number:,} | {selected:,} | {early_runs} | {early_queries} | {' | '.join(texts)} |", flush=True
        )
    print(f"{total:,} runs, {early} early; the largest median of a run's actual step over its bound is {worst:.2f}.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(OPTIMIZERS))
    main(**vars(parser.parse_args()))
