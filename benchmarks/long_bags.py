"""Processor seconds of a fit with a few long bags among short ones, and with small batches.

The short set has 289 bags of at most 60 rows, about 2,700 in all; the long one has 11 more of 100 to 2,000 rows, 4.5
times the rows. A positive bag has one row that is shifted. Every fit is a process of its own, with an empty cache of
programs, so that compilation counts, and the least of the rounds. `python benchmarks/long_bags.py [ROUNDS]`
"""

import subprocess
import sys
import time

import numpy as np

import attsvm

MODELS = "AttentionClassifier", "DetectorClassifier"


def bags(long: bool) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of 10 columns, and their labels."""
    generator = np.random.default_rng(0)
    lengths = np.minimum(1 + generator.lognormal(1.6, 1.15, 289).astype(int), 60)
    if long:
        lengths = np.concatenate([lengths, (100 + 1900 * np.linspace(0, 1, 11) ** 1.55).astype(int)])
    labels = (generator.random(len(lengths)) < 0.3).astype(int)
    arrays = [generator.normal(size=(length, 10)) for length in lengths]
    for array in np.array(arrays, dtype=object)[labels == 1]:
        array[0, :3] += 3
    return arrays, labels


def fit(model: str, long: bool, batch_size: int) -> None:
    """Print processor seconds, steps and the number of rows of one fit."""
    X, y = bags(long)
    classifier = getattr(attsvm, model)(batch_size=batch_size, random_state=0)
    began = time.process_time()
    classifier.fit(X, y)
    print(time.process_time() - began, classifier.n_iter_, sum(map(len, X)))


def measured(model: str, long: bool, batch_size: int, rounds: int) -> tuple[float, int, int]:
    """The least seconds of some rounds, each in a new process."""
    command = [sys.executable, __file__, "fit", model, str(int(long)), str(batch_size)]
    found = []
    for _ in range(rounds):
        made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        found.append((float(made[0]), int(made[1]), int(made[2])))
    return min(found)


def main() -> None:
    if sys.argv[1:2] == ["fit"]:
        return fit(sys.argv[2], sys.argv[3] == "1", int(sys.argv[4]))
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("| model | bags | batch_size | rows | steps | seconds | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for model in MODELS:
        base = None
        for long, batch_size in ((False, 256), (True, 256), (False, 32)):
            seconds, steps, rows = measured(model, long, batch_size, rounds)
            base = base or seconds
            kind = "with long ones" if long else "short"
            print(f"| {model} | {kind} | {batch_size} | {rows:,} | {steps:,} | {seconds:.1f} | {seconds / base:.1f} |")


if __name__ == "__main__":
    main()
