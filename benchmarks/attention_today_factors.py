"""Gains and rotations: the margin ratios of runs with a trained gain, a shared gain, and rotated keys and queries.

    python benchmarks/attention_today_factors.py [--write] [NAME ...]

Trains 24 random problems of each of three sizes with default steps, 48 with rotations, and prints the mean and the
least margin ratio for the tokens that a run selects, in the norm of the parametrization. Problems with rotations are
those whose Att-SVM has ranks of at most 1, for which the norm is attained, and the others. A gain that keys and queries
share, x' diag(g) W diag(g) z, has no such norm: its ratios are those in ℓ2,1 and in the Frobenius norm. ``--write``
replaces the rows of this command in the table of standings, src/attsvm/theory/standings.toml.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import attsvm
from attsvm.datasets import random_problem
from attsvm.norms import Lp, OnRows, Rotary
from attsvm.theory.hypotheses import NO_RANK
from attsvm.training import LossGradient
from cases import markdown
from standings import ENOUGH, columns_of, write_rows

COMMAND = "python benchmarks/attention_today_factors.py"
SIZES = ((3, 4, 5), (4, 6, 8), (6, 8, 10))
PROBLEMS, SEED = 24, 62
COUNTS = (2_000, 5_000, 10_000, 30_000, 100_000)
SHARED_STEPS = 15_000
"""More would leave the floats: the weights grow like the cube of the parameters."""
USED = 1e-3
"""A row of W is in use if it has at least this part of the length of the longest."""
ROWS = OnRows(Lp(1.0))
COUNTS_OF_ROTATIONS = COUNTS[:-1]
FREQUENCIES = ((1.0, 0.5, 0.25, 0.1), (1.0, 0.1, 0.01, 0.001))
"""Those of RoPE are 10000^(−j/J), the second row for J = 4. Each has half of the problems."""


class Measured(NamedTuple):
    """Runs on the problems of one size: their ratios (counts, problems) in a norm, and what else is shown."""

    size: tuple[int, ...]
    norm: str
    counts: tuple[int, ...]
    ratios: np.ndarray
    note: str
    run: attsvm.Run | None = None

    def at(self, count: int) -> np.ndarray:
        return np.asarray(self.ratios[self.counts.index(count)])


def trained(problem: attsvm.Problem, attention: str, counts: tuple[int, ...]) -> attsvm.Run:
    records = sorted({*counts, *(count - 1 for count in counts)})
    return attsvm.train(problem, attention=attention, steps=counts[-1], record=records, seed=SEED)


def ratios_of(problem: attsvm.Problem, run: attsvm.Run, norm: Any, counts: tuple[int, ...]) -> np.ndarray:
    """Margin ratios at the records, of the tokens selected there."""
    at = np.searchsorted(run.history["steps"], counts)
    weights, selected = run.history["weights"][at], run.history["selected"][at]
    return np.stack([attsvm.margin_ratio(problem, *one, norm) for one in zip(weights, selected, strict=True)])


def gain() -> Iterator[Measured]:
    """Runs with a gain on the keys, whose norm is ℓ2,1."""
    for n, T, d in SIZES:
        problem = random_problem(n, T, d, seed=SEED, batch=(PROBLEMS,))
        run = trained(problem, "gain", COUNTS)
        lengths = np.linalg.norm(run.weights, axis=-1)
        used = (lengths > USED * lengths.max(axis=-1, keepdims=True)).sum(axis=-1)
        other = attsvm.margin_ratio(problem, run, norm="frobenius")
        note = f"{other.mean():.3f} in Frobenius; {used.mean():.1f} of {d} rows in use"
        yield Measured((n, T, d), "l2,1", COUNTS, ratios_of(problem, run, ROWS, COUNTS), note, run)


def shared_gain() -> Iterator[Measured]:
    """Runs with one gain on keys and queries."""
    for n, T, d in SIZES:
        problem = random_problem(n, T, d, seed=SEED, batch=(PROBLEMS,))
        weights, used = with_shared_gain(problem)
        selected = attsvm.measures.token_logits(problem, weights).argmax(axis=-1)[..., 0]
        ratio, other = (attsvm.margin_ratio(problem, weights, selected, norm) for norm in (ROWS, "frobenius"))
        note = f"{other.mean():.3f} in Frobenius; {used:.1f} of {d} entries of g in use"
        yield Measured((n, T, d), "l2,1", (SHARED_STEPS,), ratio[None], note)


def with_shared_gain(problem: attsvm.Problem) -> tuple[np.ndarray, float]:
    """diag(g) W diag(g) after descent on (g, W), and how many entries of g are in use.

    The library trains products in which each parameter occurs once. The steps are the default ones of products: one
    norm over both gradients, 0.03/(1 + k/4000) times the norm of (g, W).
    """
    d, gradient_at = problem.dim, LossGradient(problem, "combined")
    g = np.ones((PROBLEMS, d))
    W = np.random.default_rng(SEED).standard_normal((PROBLEMS, d, d)) / np.sqrt(d)

    def length(g: np.ndarray, W: np.ndarray) -> np.ndarray:
        return np.asarray(np.sqrt((g * g).sum(axis=-1) + (W * W).sum(axis=(-2, -1))))

    for step in range(SHARED_STEPS):
        gradient, _ = gradient_at({"W": g[:, :, None] * W * g[:, None]})
        G = gradient["W"]
        of_W = g[:, :, None] * G * g[:, None]
        of_g = (G * W * g[:, None]).sum(axis=-1) + (G * W * g[:, :, None]).sum(axis=-2)
        rate = 0.03 / (1 + step / 4000) * length(g, W) / length(of_g, of_W)
        W, g = W - rate[:, None, None] * of_W, g - rate[:, None] * of_g
    used = (np.abs(g) > USED * np.abs(g).max(axis=-1, keepdims=True)).sum(axis=-1)
    return g[:, :, None] * W * g[:, None], float(used.mean())


def rotary() -> Iterator[Measured]:
    """Runs with rotated keys and queries whose Att-SVM has ranks of at most 1."""
    yield from (one for one, of_rank_one in rotated() if of_rank_one)


def rotary_of_higher_rank() -> Iterator[Measured]:
    """The others, whose norm is a bound that may not be attained."""
    yield from (one for one, of_rank_one in rotated() if not of_rank_one)


@cache
def rotated() -> list[tuple[Measured, bool]]:
    """The runs with rotated keys and queries of each size, and whether the ranks of the Att-SVM are at most 1."""
    found, counts = [], COUNTS_OF_ROTATIONS
    for n, T, d in SIZES:
        plain = random_problem(n, T, d, seed=SEED, batch=(2 * PROBLEMS,))
        halves = plain[:PROBLEMS], plain[PROBLEMS:]
        each = [half.with_rotations(own) for half, own in zip(halves, FREQUENCIES, strict=True)]
        problem = stack_batches(each)
        run, norm = trained(problem, "rotary", counts), Rotary(len(FREQUENCIES[0]))
        solution = attsvm.solve_svm(problem, run.selected, norm=norm)
        ratios, rank_one = ratios_of(problem, run, norm, counts), ranks(norm, solution) <= 1
        other = attsvm.margin_ratio(problem, run, norm="frobenius")
        for which in (True, False):
            some = np.flatnonzero(rank_one == which)
            note = f"{other[some].mean():.3f} in Frobenius; certified to {solution.gap[some].max():.0e}"
            found.append((Measured((n, T, d), "rotary", counts, ratios[:, some], note, run[some]), which))
    return found


def ranks(norm: Rotary, solution: attsvm.Solution) -> np.ndarray:
    """The largest rank of a frequency, as predict_direction counts it."""
    sizes = np.linalg.svd(norm.blocks(solution.direction), compute_uv=False)
    return np.asarray((sizes > NO_RANK * solution.value[:, None, None]).sum(axis=-1).max(axis=-1))


def stack_batches(each: list[attsvm.Problem]) -> attsvm.Problem:
    """Join batches of problems along their axis."""
    arrays = [one.arrays() for one in each]
    return attsvm.Problem(**{name: np.concatenate([of[name] for of in arrays]) for name in arrays[0]})


PARTS: dict[str, Callable[[], Iterator[Measured]]] = {
    "gain": gain,
    "shared gain": shared_gain,
    "rotary": rotary,
    "rotary, rank > 1": rotary_of_higher_rank,
}


def row_of(attention: str, norm: str, found: list[Measured]) -> dict[str, Any]:
    """The row of the table of standings: the smallest mean and the least ratio of all sizes."""
    counts = found[0].counts
    means = {count: min(one.at(count).mean() for one in found) for count in counts}
    enough = [count for count in counts if min(means[later] for later in counts if later >= count) >= ENOUGH]
    begins, ends = (enough or counts)[0], counts[-1]
    runs = [one.run for one in found if one.run is not None]
    late = [
        run.history["logit_change"][np.isin(run.history["steps"], [c for c in counts if c >= begins])] for run in runs
    ]
    return {
        "command": COMMAND,
        "steps": columns_of(runs[0].limit.steps),
        "attention": attention,
        "norm": norm,
        "found": "measured" if enough else "none",
        "measure": "margin ratio",
        "first": [means[begins], min(one.at(begins).min() for one in found)],
        "last": [means[ends], min(one.at(ends).min() for one in found)],
        "num_steps": [begins, ends],
        "logit_change": [min(x.min() for x in late), max(x.max() for x in late)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines, rows = [], []
    for name in options.names or PARTS:
        begin, found = time.process_time(), list(PARTS[name]())
        for one in found:
            size = ", ".join(map(str, one.size))
            for count in (c for c in one.counts if c >= 10_000):
                ratios = one.at(count)
                numbers = [f"{len(ratios)}", f"{count:,}", f"{ratios.mean():.3f} / {ratios.min():.3f}"]
                lines.append([name, size, *numbers, one.norm, one.note if count == one.counts[-1] else ""])
        if found[0].run is not None and ">" not in name:
            rows.append(row_of(found[0].run.attention, found[0].norm, found))
            print(rows[-1])
        print(f"{name}: {time.process_time() - begin:.0f} s of processor time", flush=True)
    print(markdown(["trained", "n, T, d", "problems", "steps", "ratio, mean / least", "norm", "and"], lines))
    if options.write:
        write_rows(rows, COMMAND, all_of_command=not options.names)


if __name__ == "__main__":
    main()
