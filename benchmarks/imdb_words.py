"""Attention over word vectors on IMDb: the numbers of docs/notes/imdb_words.md.

python benchmarks/imdb_words.py --data ../shared/data/imdb          # about five minutes on two cores
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from attsvm._fit.texts.fit_text import fit_text
from attsvm._fit.texts.text import read_texts

SHOWN = ("worst", "disappointing", "funniest", "the", "and", "a")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    train, test = (read_texts(arguments.data / f"{part}.parquet") for part in ("train", "test"))
    for p in (None, 1.5):
        for seed in range(arguments.seeds):
            report(train, test, p, seed)


def report(train, test, p: float | None, seed: int) -> None:
    """Fit once and print the results."""
    cpu, wall = time.process_time(), time.perf_counter()
    done = fit_text(train, test, seed=seed, p=p)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    over = dict(zip(done.encoder.vocabulary, done.words.over_frequency, strict=False))
    mean, tf_idf = (done.baselines[name]["test"] for name in ("mean_token", "tf_idf"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{'adam' if p is None else f'mirror descent, p = {p:g}'}, seed {seed}:")
    print(f"  test accuracy {done.test.accuracy:.4f}, mean token {mean:.4f}, TF-IDF {tf_idf:.4f}")
    print(f"  effective words: median {np.median(done.test.effective):.0f}, mean {done.test.effective.mean():.0f}")
    print("  attention over frequency: " + ", ".join(f"{word} {over[word]:.3g}" for word in SHOWN))
    print("  seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in done.seconds.items()))
    print(f"  {wall:.0f} s, {cpu:.0f} s of processor time, at most {memory:.2f} GiB", flush=True)


if __name__ == "__main__":
    main()
