"""Runs with decoupled weight decay compared with their limits, and the limits with what they claim.

    python benchmarks/weight_decay.py [times] [runs] [certificate] [barrier]

Prints the tables of docs/notes/weight_decay.md. Times are of the processor, on one thread; ``runs`` takes some minutes.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import sys
import time

import numpy as np

import attsvm
from attsvm.norms import parse_norm
from attsvm.optimizers import spectral_descent, steepest_descent
from attsvm.theory import constrained_limit
from cases import markdown

SEED = 1000
SIZES = ((4, 4, 6), (6, 8, 10), (12, 10, 16), (20, 16, 24))
RATIOS = (0.5, 1.0, 4.0, 16.0, 64.0)
NORMS = ("frobenius", "linf", "spectral", "nuclear")
RADII = (1.0, 10 / 3, 10.0, 100.0)
STEPS = 30_000
SIGN_STEPS = 100_000


def steepest(norm, rate, decay):
    return steepest_descent(norm=norm, learning_rate=rate, weight_decay=decay)


def spectral(rate, decay):
    return spectral_descent(rate, weight_decay=decay)


OPTIMIZERS = {
    "Frobenius, W": ("combined", "frobenius", 0.1, lambda rate, decay: steepest("frobenius", rate, decay)),
    "sign, W": ("combined", "linf", 0.01, lambda rate, decay: steepest("linf", rate, decay)),
    "spectral, W": ("combined", "spectral", 0.01, spectral),
    "spectral, K and Q": ("factored", "spectral", 0.01, spectral),
    "Frobenius, K and Q": ("factored", "nuclear", 0.1, lambda rate, decay: steepest("frobenius", rate, decay)),
}


def gap_of(problem, weights, radius, norm):
    """The relative Frank-Wolfe gap, from NumPy alone, and the least gap of logits and its probability."""
    logits = np.einsum("ntd,de,ne->nt", problem.tokens, weights, problem.queries)
    attention = np.exp(logits - logits.max(axis=1, keepdims=True))
    attention /= attention.sum(axis=1, keepdims=True)
    score = problem.labels[:, None] * (problem.tokens @ problem.head)
    above = np.einsum("nu,ntu->nt", attention, score[:, :, None] - score[:, None])
    slope = -attention * above / (1 + np.exp((attention * score).sum(axis=1)))[:, None]
    gradient = np.einsum("nt,ntd,ne->de", slope / np.abs(slope).max(), problem.tokens, problem.queries)
    gap = 1 + (gradient * weights).sum() / (radius * parse_norm(norm).dual.value(gradient))
    ordered = np.sort(logits, axis=1)
    return gap, (ordered[:, -1] - ordered[:, -2]).min(), attention.max(axis=1).min()


def times():
    """Gap, and time alone and in batches, with the Att-SVM and the certificate."""
    rows = []
    for size in SIZES:
        count = 20 if size[0] <= 6 else 4
        problems = attsvm.datasets.random_problem(*size, seed=SEED, batch=(count,))
        for norm in NORMS:
            value = np.asarray(attsvm.solve_svm(problems, attsvm.optimal_tokens(problems), norm=norm).value)
            value = np.where(np.isfinite(value), value, np.nanmedian(value[np.isfinite(value)]))
            worst, alone, together = 0.0, [], []
            for ratio in RATIOS:
                constrained_limit(problems[0], radius=ratio * value[0], norm=norm)
                begun = time.process_time()
                limit = constrained_limit(problems, radius=ratio * value, norm=norm)
                together.append((time.process_time() - begun) / count)
                worst = max(
                    worst,
                    *(gap_of(p, w, r, norm)[0] for p, w, r in zip(problems, limit.weights, limit.radius, strict=True)),
                )
                for k in range(min(count, 5)):
                    begun = time.process_time()
                    constrained_limit(problems[k], radius=ratio * value[k], norm=norm)
                    alone.append(time.process_time() - begun)
            rows.append(
                [
                    f"{size}",
                    norm,
                    f"{worst:.0e}",
                    f"{1e3 * np.median(alone):.0f} / {1e3 * max(alone):.0f}",
                    f"{1e3 * np.median(together):.1f} / {1e3 * max(together):.1f}",
                ]
            )
            print(rows[-1], flush=True)
    return markdown(["n, T, d", "norm", "largest gap", "alone, ms, median / largest", "in batches"], rows)


def runs():
    """10 problems, 5 optimizers, 4 radii: the runs against the limit that starts at them."""
    problems, rows = attsvm.datasets.random_problem(6, 8, 10, seed=SEED, batch=(10,)), []
    for name, (attention, norm, gamma, make) in OPTIMIZERS.items():
        for radius in RADII:
            decay = radius ** (-0.5 if attention == "factored" else -1)
            steps = SIGN_STEPS if norm == "linf" else STEPS

            def schedule(step, decay=decay, gamma=gamma, steps=steps):
                return gamma / decay * (1 - step / steps)

            run = attsvm.train(
                problems, attention=attention, optimizer=make(schedule, decay), steps=steps, record=[steps]
            )
            limit = constrained_limit(problems, radius=radius, norm=norm, start=run)
            found = [gap_of(p, w, radius, norm) for p, w in zip(problems, run.weights, strict=True)]
            gap, logit, probability = np.array(found).T
            small = gap <= 1e-6
            error = attsvm.direction_error(run.weights, limit.weights, axis=(-2, -1))
            # the caps of the tokens that the run selects
            of_run = constrained_limit(problems, radius=radius, norm=norm, start=run.weights)
            same = (of_run.selected == run.selected).all(axis=-1)
            over = (logit > of_run.ratio) | (probability > of_run.cap)
            closed = np.abs(
                np.nanmin(np.where(np.isfinite(of_run.closed_form), of_run.closed_form, np.inf), axis=(1, 2)) - logit
            )
            shown = closed[np.isfinite(closed) & same]
            rows.append(
                [
                    name,
                    f"{radius:.3g}",
                    f"{np.median(gap):.0e} / {gap.max():.0e}",
                    f"{small.sum()}",
                    f"{np.median(error[small]):.0e} / {error[small].max():.0e}" if small.any() else "-",
                    f"{error.max():.0e}",
                    f"{(over & same).sum()} of {same.sum()}",
                    f"{np.median(shown):.2f} / {np.quantile(shown, 0.95):.2f}" if len(shown) else "-",
                ]
            )
            print(rows[-1], flush=True)
    return markdown(
        [
            "steps",
            "R",
            "gap of the run",
            "runs of gap ≤ 1e-6",
            "their direction error, median / largest",
            "largest of all runs",
            "caps exceeded",
            "error of the closed form, median / 95 %",
        ],
        rows,
    )


def certificate():
    """The bound against the point, and against 10,000 weights."""
    problems, rows, rng = (
        attsvm.datasets.random_problem(6, 8, 10, seed=SEED + 1, batch=(10,)),
        [],
        np.random.default_rng(0),
    )
    for norm in NORMS[:3]:
        value = attsvm.solve_svm(problems, attsvm.optimal_tokens(problems), norm=norm).value
        for ratio in (4.0, 8.0, 16.0, 32.0):
            limit = constrained_limit(problems, radius=ratio * value, norm=norm)
            below = 0
            for k, problem in enumerate(problems):
                scale = rng.random((84, 1, 1)) ** 3
                others = limit.weights[k] + scale * limit.radius[k] * rng.standard_normal((84, 10, 10))
                others *= limit.radius[k] / parse_norm(norm).values(others)[:, None, None]
                logits = np.einsum("ntd,kde,ne->knt", problem.tokens, others, problem.queries)
                attention = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
                score = problem.labels[:, None] * (problem.tokens @ problem.head)
                lost = (attention * (score.max(axis=1, keepdims=True) - score)).sum(axis=-1)
                best = score.max(axis=1)
                excess = np.log1p(np.expm1(lost) / (1 + np.exp(best))).mean(axis=-1)
                below += int((np.log(excess) < limit.log_bound[k]).sum())
            over = limit.excess_over_bound
            rows.append([norm, f"{ratio:g}", f"{np.median(over):.0e} / {over.max():.0e}", f"{below} of 840"])
            print(rows[-1], flush=True)
    return markdown(["norm", "R/V", "excess over the bound − 1, median / largest", "weights below the bound"], rows)


def barrier():
    """AdamW's ε: the residual, the margin ratios and the gap."""
    problems, rows = attsvm.datasets.random_problem(6, 8, 10, seed=SEED, batch=(12,)), []
    for epsilon in (1e-4, 1e-6, 1e-8):
        for decay in (0.3, 0.1, 0.03, 0.01):
            limit = constrained_limit(problems, decay=decay, norm="linf", epsilon=epsilon)
            kept = np.arange(8) == limit.selected[..., None]
            least = np.where(kept, np.inf, limit.logit_gaps).min(axis=(1, 2))
            ratios = [
                [attsvm.margin_ratio(p, w, s, norm=norm) for norm in ("linf", "frobenius")]
                for p, w, s, v in zip(problems, limit.weights, limit.selected, limit.value, strict=True)
                if np.isfinite(v)
            ]
            shown = np.median(ratios, axis=0)
            rows.append(
                [
                    f"{epsilon:g}",
                    f"{decay:g}",
                    f"{limit.gap.max():.0e}",
                    f"{shown[0]:.3f}",
                    f"{shown[1]:.3f}",
                    f"{np.median(least):.1f}",
                ]
            )
    return markdown(
        ["ε", "λ", "largest residual", "margin ratio in ℓ∞", "in Frobenius", "least logit gap, median"], rows
    )


if __name__ == "__main__":
    tables = {"times": times, "runs": runs, "certificate": certificate, "barrier": barrier}
    for name in sys.argv[1:] or tables:
        print(f"\n{tables[name].__doc__}\n\n{tables[name]()}", flush=True)
