"""Runs with decoupled weight decay compared with their limits, and the limits with what they claim.

    python benchmarks/weight_decay.py [times] [runs] [certificate] [barrier] [muon] [adam] [--write]

Prints the tables of docs/notes/weight_decay.md. Times are of the processor, on one thread; ``runs`` takes some minutes.
With ``--write``, ``runs`` replaces the rows on stationary points in the table of standings.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import argparse
import time

import numpy as np
import optax

import attsvm
from attsvm.norms import parse_norm
from attsvm.optimizers import chain, spectral_descent, steepest_descent
from attsvm.optimizers.gradient import GradientDescent
from attsvm.optimizers.rule import DecoupledWeightDecay
from attsvm.optimizers.transformations import LearningRate, Normalize
from attsvm.theory import constrained_limit
from cases import markdown
from standings import ENOUGH, write_rows

COMMAND = "python benchmarks/weight_decay.py runs"

SEED = 1000
SIZES = ((4, 4, 6), (6, 8, 10), (12, 10, 16), (20, 16, 24))
RATIOS = (0.5, 1.0, 4.0, 16.0, 64.0)
NORMS = ("frobenius", "linf", "spectral", "nuclear")
RADII = (1.0, 10 / 3, 10.0, 100.0)
STEPS = 30_000
SIGN_STEPS = 100_000
MUON_STEPS = 10_000
ADAM_STEPS = 20_000


def steepest(norm, rate, decay):
    return steepest_descent(norm=norm, learning_rate=rate, weight_decay=decay)


def spectral(rate, decay):
    return spectral_descent(rate, weight_decay=decay)


def frobenius(rate, decay):
    return steepest("frobenius", rate, decay)


def together(rate, decay):
    """One Frobenius norm over all parameters."""
    return chain(Normalize("all"), LearningRate(rate), DecoupledWeightDecay(GradientDescent(), decay))


# attention, norm, first rate times decay, factory, and whether all parameters are in one ball
OPTIMIZERS = {
    "Frobenius, W": ("combined", "frobenius", 0.1, frobenius, False),
    "sign, W": ("combined", "linf", 0.01, lambda rate, decay: steepest("linf", rate, decay), False),
    "spectral, W": ("combined", "spectral", 0.01, spectral, False),
    "spectral, K and Q": ("factored", "spectral", 0.01, spectral, False),
    "Frobenius, K and Q": ("factored", "nuclear", 0.1, frobenius, False),
    "Frobenius, K and Q together": ("factored", "nuclear", 0.1, together, True),
}
ALL_HEADS = {"Frobenius, all W together": ("combined", "frobenius", 0.1, together, True)}
COLUMNS = [
    "heads, steps",
    "R",
    "gap of the run",
    "runs of gap ≤ 1e-6",
    "their direction error, median / largest",
    "largest of all runs",
    "caps exceeded",
    "error of the closed form, median / 95 %",
]


def gap_of(problem, weights, radius, norm, one_ball=True):
    """The relative Frank-Wolfe gap, from NumPy alone, and the least gap of logits and its probability.

    Of several heads: that of one ball of all of them, or the largest of the balls of each.
    """
    weights, lead = np.atleast_3d(weights.T).T, problem.num_heads is None
    tokens, queries = (x[None] if lead else x for x in (problem.tokens, problem.queries))
    labels, head = problem.labels if lead else problem.labels[0], np.atleast_2d(problem.head)
    logits = np.einsum("hntd,hde,hne->hnt", tokens, weights, queries)
    attention = np.exp(logits - logits.max(axis=-1, keepdims=True))
    attention /= attention.sum(axis=-1, keepdims=True)
    score = labels[:, None] * np.einsum("hntd,hd->hnt", tokens, head)
    above = np.einsum("hnu,hntu->hnt", attention, score[..., :, None] - score[..., None, :])
    slope = -attention * above / (1 + np.exp((attention * score).sum(axis=(0, -1))))[:, None]
    # relative to the largest term: of all heads, or of each one
    largest = np.abs(slope).max(axis=None if one_ball else (1, 2), keepdims=True)
    gradient = np.einsum("hnt,hntd,hne->hde", slope / largest, tokens, queries)
    inner, dual = (gradient * weights).sum(axis=(1, 2)), parse_norm(norm).dual.values(gradient)
    if one_ball:  # the norms are those of the block-diagonal matrix
        dual = {"frobenius": np.linalg.norm, "nuclear": np.max}[norm](dual) if len(dual) > 1 else dual
        inner = inner.sum()
    second, first = np.moveaxis(np.sort(logits, axis=-1)[..., -2:], -1, 0)
    return np.max(1 + inner / (radius * dual)), (first - second).min(), attention.max(axis=-1).min()


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


def runs(write=False):
    """10 problems, 4 radii, one head and two: the runs against the limit that starts at them."""
    tables, standings = [], []
    for heads in (None, 2):
        rows = []
        problems = attsvm.datasets.random_problem(6, 8, 10, seed=SEED, batch=(10,), num_heads=heads)
        for name, of_steps in (OPTIMIZERS | (ALL_HEADS if heads else {})).items():
            shown, row = runs_of(problems, name, *of_steps)
            rows, standings = rows + shown, [*standings, row]
        tables.append(markdown(COLUMNS, rows))
    if write:
        write_rows(standings, COMMAND)
    return "\n\n".join(tables)


def runs_of(problems, name, attention, norm, gamma, make, one_ball):
    """The lines of the table of one kind of steps, and its row in the table of standings."""
    rows, correlations, heads = [], [], problems.num_heads
    own = (-3, -2, -1) if heads and one_ball else (-2, -1)
    steps = SIGN_STEPS if norm == "linf" else STEPS
    for radius in RADII:
        # K and Q together: ‖K‖² + ‖Q‖² ≤ 1/λ² bounds twice the nuclear norm
        decay = (radius * (1 + one_ball)) ** -0.5 if attention == "factored" else 1 / radius

        def schedule(step, decay=decay):
            return gamma / decay * (1 - step / steps)

        run = attsvm.train(problems, attention=attention, optimizer=make(schedule, decay), steps=steps, record=[steps])
        limit = constrained_limit(problems, radius=radius, norm=norm, start=run, together=one_ball)
        found = [gap_of(p, w, radius, norm, one_ball) for p, w in zip(problems, run.weights, strict=True)]
        gap, logit, probability = np.array(found).T
        small = gap <= 1e-6
        error = attsvm.direction_error(run.weights, limit.weights, axis=own).reshape(len(gap), -1).max(axis=1)
        correlations.append(1 - error)
        # the caps of the tokens that the run selects, as the least of its heads
        same = (limit.selected == run.selected).reshape(len(gap), -1).all(axis=1)
        ratio, cap = (np.reshape(x, (len(gap), -1)).min(axis=1) for x in (limit.ratio, limit.cap))
        over = (logit > ratio) | (probability > cap)
        closed = np.where(np.isfinite(limit.closed_form), limit.closed_form, np.inf).reshape(len(gap), -1).min(axis=1)
        closed = np.abs(closed - logit)[np.isfinite(closed) & same]
        rows.append(
            [
                f"{heads or 1}: {name}",
                f"{radius:.3g}",
                f"{np.median(gap):.0e} / {gap.max():.0e}",
                f"{small.sum()}",
                f"{np.median(error[small]):.0e} / {error[small].max():.0e}" if small.any() else "-",
                f"{error.max():.0e}",
                f"{(over & same).sum()} of {same.sum()}",
                f"{np.median(closed):.2f} / {np.quantile(closed, 0.95):.2f}" if len(closed) else "-",
            ]
        )
        print(rows[-1], flush=True)
    # the worst radius decides
    first, last = ([float(f(correlations[i])) for f in (np.mean, np.min)] for i in (0, -1))
    return rows, {
        "command": COMMAND,
        "steps": {"kind": "unit", **({} if one_ball else {"scope": "each"})},
        "attention": attention,
        "norm": norm,
        "heads": "several" if heads else "one",
        "found": "measured" if min(np.mean(one) for one in correlations) >= ENOUGH else "none",
        "measure": "correlation",
        "first": first,
        "last": last,
        "num_steps": [steps, steps],
        "logit_change": [0.0, float("inf")],
        "radius": [RADII[0], RADII[-1]],
    }


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


def muon():
    """Muon with momentum 0.95 and two polar factors: 10 problems, 10,000 steps whose rates decrease to zero."""
    problems, rows = attsvm.datasets.random_problem(6, 8, 10, seed=SEED, batch=(10,)), []
    for polar in ("exact", "optax"):
        for decay in (1.0, 0.1, 0.01):

            def schedule(step, decay=decay):
                return 0.01 / decay * (1 - step / MUON_STEPS)

            optimizer = spectral_descent(schedule, polar=polar, momentum=0.95, weight_decay=decay)
            run = attsvm.train(problems, optimizer=optimizer, steps=MUON_STEPS, record=[MUON_STEPS])
            size = parse_norm("spectral").values(run.weights) * decay
            # in the ball that the run is on
            found = [
                gap_of(p, w, s / decay, "spectral")[0] for p, w, s in zip(problems, run.weights, size, strict=True)
            ]
            shown = [f"{np.median(found):.0e} / {np.max(found):.0e}", f"{size.min():.2f} to {size.max():.2f}"]
            rows.append([polar, f"{decay:g}", *shown])
            print(rows[-1], flush=True)
    return markdown(["polar factor", "λ", "gap in the ball of its norm, median / largest", "λ N(W)"], rows)


def adam():
    """AdamW on raw gradients: the largest least gap above ½ t log(1/β₂), over 60 steps t from 10 to 20,000."""
    rows, settings = [], ((1.0, 0.01), (0.1, 0.01), (0.1, 0.1))
    for size in SIZES[:3]:
        problems = attsvm.datasets.random_problem(*size, seed=2000, batch=(8,))
        for b2 in (0.9, 0.99, 0.999):
            above = []
            for rate, decay in settings:

                def schedule(step, rate=rate):
                    return rate * (1 - step / ADAM_STEPS)

                optimizer = optax.adamw(schedule, b1=0.9, b2=b2, eps=1e-300, weight_decay=decay)
                record = np.unique(np.geomspace(10, ADAM_STEPS, 60).astype(int)).tolist()
                run = attsvm.train(problems, optimizer=optimizer, steps=ADAM_STEPS, record=record)
                weights, steps = run.history["weights"], run.history["steps"]
                logits = np.sort(np.einsum("bntd,rbde,bne->rbnt", problems.tokens, weights, problems.queries), axis=-1)
                gaps = (logits[..., -1] - logits[..., -2]).min(axis=-1)
                above.append(f"{(gaps + steps[:, None] * np.log(b2) / 2).max():.1f}")
            rows.append([str(size), f"{b2:g}", *above])
            print(rows[-1], flush=True)
    return markdown(["n, T, d", "β₂", *(f"first rate {rate:g}, λ {decay:g}" for rate, decay in settings)], rows)


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
    tables = {"times": times, "runs": runs, "certificate": certificate, "barrier": barrier, "muon": muon, "adam": adam}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", choices=[*tables, []])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    for name in given.tables or tables:
        options = {"write": True} if name == "runs" and given.write else {}
        print(f"\n{tables[name].__doc__}\n\n{tables[name](**options)}", flush=True)
