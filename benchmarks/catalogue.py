"""What the catalogue of optimizers holds, and whether its verdicts hold on problems that it was not measured on.

The catalogue is that of the package, measured on `random_problem(6, 8, 10, seed)` with seeds from 0. Each norm that it
names on W is measured again on eight problems with other seeds, with as many steps.

Run: python benchmarks/catalogue.py [--first-seed 1000] [--problems 8] [--every 1]
"""

import argparse
from collections import Counter

import jax

import attsvm
from attsvm.datasets import random_problem
from attsvm.problem import stack_problems
from measure_catalogue import SETTINGS, installed_optimizers


def counts(entries):
    for setting in dict.fromkeys(entry.setting for entry in entries):
        run = [entry for entry in entries if entry.setting == setting and entry.ratio is not None]
        unfinished = sum(entry.unfinished for entry in run)
        norms = Counter(entry.verdict for entry in run if entry.is_named)
        print(f"{setting}: {len(run)} profiled, {sum(norms.values())} named {dict(norms)}, {unfinished} unfinished")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--every", type=int, default=1, help="measure every so many-th of the named entries")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for

    entries = attsvm.profiles.catalogue().entries
    counts(entries)
    listed = {one.name: one for one in installed_optimizers()}
    first = options.first_seed
    problems = stack_problems(random_problem(6, 8, 10, seed) for seed in range(first, first + options.problems))
    named = [entry for entry in entries if entry.setting == "W" and entry.is_named and entry.optimizer in listed]
    same = []
    for entry in named[:: options.every]:
        steps = max(20_000, entry.steps)
        profile = attsvm.margin_profile(listed[entry.optimizer].make(), problems, steps=steps, **SETTINGS["W"])
        same.append(profile.verdict == entry.verdict)
        if not same[-1]:
            print(f"{entry.optimizer}: {entry.verdict} in the catalogue, {profile.verdict} here: {profile.reason}")
    print(f"the same verdict on seeds {first} to {first + options.problems - 1}: {sum(same)} of {len(same)}")


if __name__ == "__main__":
    main()
