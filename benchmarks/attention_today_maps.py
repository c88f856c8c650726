"""Where training ends under sparsemax, 1.5-entmax and sigmoid attention, and how long their steps take.

    python benchmarks/attention_today_maps.py [sparsemax] [entmax1.5] [sigmoid] [speed] [--write]

Of each map 24 random problems of each of three sizes are trained. Their seeds were used for nothing else.
``sparsemax``: gradient descent with a penalty of a part of λ* of the optimal tokens, and the distance of the weights to
the Att-SVM over its norm; then after more steps with shorter learning rates. ``entmax1.5``: the distance to the
predicted minimum, and that of the minimum to twice the Att-SVM for two penalties. ``sigmoid``: normalised gradient
descent with a constant rate, then with growing ones, the direction error and the margin ratio in the SVM of tokens.
``speed``: the time of a step beside that of the softmax, in turns, at the start and where the attention is one-hot.
``--write`` replaces the rows of this command in the table of standings.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import attsvm
from attsvm.datasets import random_problem
from attsvm.losses import LOGISTIC
from attsvm.optimizers import Decaying, gradient_descent, normalized_gradient_descent
from attsvm.theory.one_hot import largest_penalty
from attsvm.theory.standing import longest_changes
from cases import markdown
from standings import columns_of, write_rows

COMMAND = "python benchmarks/attention_today_maps.py"
SIZES = (3, 4, 6), (4, 5, 8), (6, 6, 12)
"""n, T, d."""
PROBLEMS, SEED = 24, 62_000
COUNTS = 100_000, 400_000
"""The numbers of steps of sparsemax."""
PARTS = 0.3, 0.5, 0.9
"""λ over λ* of the optimal tokens, in turns."""
ENOUGH, MOST_TIMES = 1e-4, 3
"""Shorter steps are made up to this distance, so many times at most."""
COUNTS_OF_SIGMOID = 20_000, 200_000
COUNT_OF_ENTMAX = 100_000


def problems() -> Iterator[tuple[tuple[int, int, int], attsvm.Problem]]:
    for number, size in enumerate(SIZES):
        for seed in range(PROBLEMS):
            yield size, random_problem(*size, seed=SEED + 100 * number + seed)


def largest(problem: attsvm.Problem, run: attsvm.Run) -> float:
    """λ* of the optimal tokens, which ``run`` need not select."""
    selected = attsvm.optimal_tokens(problem)
    own = attsvm.Run(**{**vars(run), "selected": selected})
    return float(largest_penalty(problem, own, attsvm.solve_svm(problem, selected), LOGISTIC))


def distance(weights: np.ndarray, point: np.ndarray) -> float:
    return float(np.linalg.norm(weights - point) / np.linalg.norm(point))


def named(prediction: attsvm.Prediction, name: str) -> Any:
    return next(one for one in prediction.hypotheses if one.name == name)


def sparsemax() -> dict[str, Any]:
    rows, ratios, lines = [], [], []
    for number, (size, problem) in enumerate(problems()):
        start = attsvm.train(problem, map="sparsemax", steps=0)
        lam = largest(problem, start) * PARTS[number % len(PARTS)]
        # the weights without a kink shrink by exp(−2λη) in a step, together to about (k/K)^−4 of the start
        run = penalised(problem, lam, Decaying(1.0, 2 / lam), None)
        prediction = attsvm.predict_direction(problem, run)
        svm = attsvm.solve_svm(problem, run).direction
        found = [distance(weights, svm) for weights in run.history["weights"]]
        holds = prediction.point is not None and named(prediction, "one_hot").holds
        ratio, later, times = named(prediction, "small_penalty").number, found[-1], 0
        # steps cross the kinks back and forth: what this adds is proportional to their length
        while holds and later > ENOUGH and times < MOST_TIMES:
            run = penalised(problem, lam, Decaying(0.02 / 3**times, 25 * 3**times / lam), run.weights)
            later, times = distance(run.weights, svm), times + 1
        lines.append((size, holds, ratio, *found, later, times))
        print(number, *lines[-1], flush=True)
        if holds:
            rows.append(found)
            ratios.append(ratio)
    shown = []
    for size in SIZES:
        own = [line for line in lines if line[0] == size]
        good = np.array([line[3:] for line in own if line[1]])
        columns = [f"{x.mean():.1e} / {x.max():.1e}" for x in good.T[:3]]
        most = f"{(good[:, 3].max() + 1) * COUNTS[-1]:,.0f}"
        shown.append([" ".join(map(str, size)), f"{len(good)} of {len(own)}", *columns, most])
    headers = [
        "n, T, d",
        "hypotheses hold",
        *(f"{count:,} steps" for count in COUNTS),
        "shorter steps",
        "steps at most",
    ]
    print(markdown(headers, shown), flush=True)
    return row_of("sparsemax", 1 - np.array(rows), COUNTS, gradient_descent(1.0), "1 − distance", ratios)


def penalised(problem: attsvm.Problem, lam: float, schedule: Decaying, start: Any) -> attsvm.Run:
    optimizer = gradient_descent(schedule)
    return attsvm.train(
        problem,
        map="sparsemax",
        penalty=lam,
        optimizer=optimizer,
        steps=COUNTS[-1],
        init=start,
        record=list(COUNTS),
    )


def row_of(
    name: str, array: np.ndarray, counts: tuple[int, int], optimizer: Any, measure: str, penalty: list[float] | None
) -> dict[str, Any]:
    """The row of the table of standings. ``array``: shape (problems, 2), at both numbers of steps."""
    ends = [[float(f"{x.mean():.3g}"), float(f"{x.min():.3g}")] for x in array.T]
    row = {
        "command": f"{COMMAND} {name}",
        "steps": columns_of(optimizer.steps),
        "attention": "combined",
        "norm": "frobenius",
        "map": name,
        "found": "measured",
        "measure": measure,
        "first": ends[0],
        "last": ends[-1],
        "num_steps": list(counts),
        "logit_change": [0.0, float("inf")],  # of penalised runs it does not matter
    }
    if penalty is not None:
        row["penalty"] = [float(f"{min(penalty):.2g}"), float(f"{max(penalty):.2g}")]
    return row


def entmax() -> dict[str, Any]:
    rows, shown, near = [], [], []
    for number, (size, problem) in enumerate(problems()):
        start = attsvm.train(problem, map="entmax1.5", steps=0)
        lam = largest(problem, start) / 20
        if not lam > 0:
            continue
        parts, begin, steps = [], None, COUNT_OF_ENTMAX
        for penalty in (lam, lam / 2):
            run = attsvm.train(
                problem,
                map="entmax1.5",
                penalty=penalty,
                optimizer=gradient_descent(1.0),
                steps=steps,
                init=begin,
                record=2,
            )
            prediction = attsvm.predict_direction(problem, run)
            if prediction.point is None:
                break
            parts.append((distance(run.weights, prediction.point), named(prediction, "near_svm").number, prediction))
            # the other minimum is found by descent from this one
            begin, steps = prediction.point, 5
        names = "near_svm", "stationary", "locally_optimal", "one_hot"
        holds = bool(parts) and all(named(parts[0][2], name).holds for name in names)
        same = len(parts) == 2 and bool((parts[0][2].selected == parts[1][2].selected).all())
        shown.append((size, holds, same, *(each[:2] for each in parts)))
        print(number, *shown[-1], flush=True)
        if holds:
            rows.append([parts[0][0], parts[0][0]])
            near.append(parts[0][1])
    lines = []
    for size in SIZES:
        own = [one for one in shown if one[0] == size]
        good = [one for one in own if one[1]]
        errors = np.array([[one[3][1], one[4][1] if one[2] else np.nan] for one in good])
        runs = np.array([one[3][0] for one in good])
        lines.append(
            [
                " ".join(map(str, size)),
                f"{len(good)} of {len(own)}",
                f"{runs.mean():.1e} / {runs.max():.1e}",
                f"{errors[:, 0].mean():.1e} / {errors[:, 0].max():.1e}",
                f"{np.nanmin(errors[:, 0] / errors[:, 1]):.2f} to {np.nanmax(errors[:, 0] / errors[:, 1]):.2f}",
            ]
        )
    headers = ["n, T, d", "hypotheses hold", "run to the minimum", "minimum to twice the Att-SVM", "over that at λ/2"]
    print(markdown(headers, lines), flush=True)
    counts = COUNT_OF_ENTMAX, COUNT_OF_ENTMAX
    return row_of("entmax1.5", 1 - np.array(rows), counts, gradient_descent(1.0), "1 − distance", near)


def sigmoid() -> dict[str, Any]:
    rows, lines, changes = [], [], []
    for size in SIZES:
        own, errors, count = [], [], 0
        for of, problem in problems():
            if of != size:
                continue
            count += 1
            found = []
            for steps, rate in zip(COUNTS_OF_SIGMOID, (0.1, growing), strict=True):
                run = attsvm.train(problem, map="sigmoid", optimizer=normalized_gradient_descent(rate), steps=steps)
                changes.append(float(longest_changes(run)[0]))
                prediction = attsvm.predict_direction(problem, run)
                found.append(float(named(prediction, "near").number))
            if not named(prediction, "signs_of_scores").holds or not named(prediction, "separable").holds:
                continue
            own.append(found)
            errors.append(attsvm.direction_error(run.weights, prediction.direction))
        array = np.array(own)
        columns = [f"{x.mean():.5f} / {x.min():.5f}" for x in array.T]
        lines.append([" ".join(map(str, size)), f"{len(own)} of {count}", *columns, f"{np.max(errors):.1e}"])
        print(lines[-1], flush=True)
        rows += own
    headers = [
        "n, T, d",
        "hypotheses hold",
        *(f"margin ratio, {count:,} steps" for count in COUNTS_OF_SIGMOID),
        "largest direction error",
    ]
    print(markdown(headers, lines), flush=True)
    row = row_of("sigmoid", np.array(rows), COUNTS_OF_SIGMOID, normalized_gradient_descent(0.1), "margin ratio", None)
    return row | {"logit_change": [float(f"{min(changes):.2g}"), float(f"{max(changes):.2g}")]}


def growing(step: Any) -> Any:
    return 0.1 * (1 + step / 2000)


def speed() -> None:
    """Steps in turns, so that other work on the machine takes as much from each."""
    names, lines = ("softmax", "sparsemax", "entmax1.5", "sigmoid"), []
    for (n, T, d), trials, steps in (((6, 8, 10), 1, 20_000), ((6, 8, 10), 64, 2_000), ((50, 64, 10), 1, 1_000)):
        problem = random_problem(n, T, d, seed=0)
        for scale in (0.3, 3.0):
            start = scale * np.random.default_rng(0).standard_normal((trials, d, d))
            least = dict.fromkeys(names, np.inf)
            for turn in range(8):
                for name in names:
                    began = time.perf_counter()
                    attsvm.train(problem, map=name, optimizer=gradient_descent(1e-6), steps=steps, record=1, init=start)
                    taken = (time.perf_counter() - began) / steps * 1e6
                    least[name] = min(least[name], taken) if turn else np.inf
            over = [f"{least[name] / least['softmax']:.2f}" for name in names[1:]]
            lines.append([f"{n} {T} {d}", str(trials), str(scale), f"{least['softmax']:.1f}", *over])
            print(lines[-1], flush=True)
    print(markdown(["n, T, d", "trials", "entries of W", "softmax, µs a step", *names[1:]], lines))


def main() -> None:
    parts: dict[str, Callable[[], dict[str, Any]]] = {"sparsemax": sparsemax, "entmax1.5": entmax, "sigmoid": sigmoid}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, "speed"])
    parser.add_argument("--write", action="store_true", help="write the rows of the table of standings, too")
    options = parser.parse_args()
    for name in options.parts or [*parts, "speed"]:
        if name == "speed":
            speed()
            continue
        row = parts[name]()
        print(row, flush=True)
        if options.write:
            write_rows([row], row["command"])


if __name__ == "__main__":
    main()
