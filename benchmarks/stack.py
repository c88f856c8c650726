"""Where several attention layers that are trained together end: the hierarchical Att-SVM of each layer.

Random problems (``attsvm.datasets.random_problem``), exponential loss, default steps. Each line is one family. A
problem counts as saturated if each softmax on the selected path has a probability above 0.99. All but "plain" are of
the saturated problems. "error": direction error to the relaxed Att-SVM of the layer, the largest over the attention
heads: the median of the worst layer, and the share of problems that are below 1e-2 in each layer. "margins": the share
whose layers and heads have margins within 1 % of each other. "margin ratio": the smallest margin on the path, times the
value of the relaxed Att-SVM, over the norm of the weights. "plain": the median direction error to the Att-SVM that
requires a margin of 1 at all positions, of the first layer, and the share of problems for which that is infeasible.

    python benchmarks/stack.py [--seed 2000 --problems 48 --steps 50000 --families L2 L3 ...] [--settle 20000]
    python benchmarks/stack.py --seed 7000 --problems 24 --write [--families ...]
    python benchmarks/stack.py --time
    python benchmarks/stack.py --induction

``--settle`` makes so many more steps of length 0.1 in the plain norm, and prints a second line for the end of these.
"with ties": the share that is below 1e-2 if the tokens between which a position off the path is still undecided are
required to have equal logits, in the layers where this Att-SVM is not larger than the weights over their margin.
"slow": the share of problems whose weights still differ by more than 1e-2, but whose change since half of the steps
does not. ``--write`` replaces the rows of these families in src/attsvm/theory/standings.toml: the margin ratio of a
problem is that of its worst layer and head.

"fading": steps of at most 1, on weights that forget those of the first steps; not a part of the library.

The induction task: T - 1 different words and the word a, which is one of the first T - 2 and is followed by b; b is the
label. Two causal layers; the value matrix of the first one copies words to coordinates of their own. The path is right
if in all sequences the query a selects b, and the position of b selects a in the first layer, the word before it.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm.datasets import random_problem
from attsvm.measures import token_logits
from attsvm.norms import Lp
from attsvm.optimizers import Decaying, Rule, chain, normalized_gradient_descent, spectral_descent
from attsvm.optimizers.transformations import LearningRate, Normalize
from attsvm.stack.prediction import model_of
from attsvm.theory.standing import known_limits, longest_changes
from standings import ENOUGH, columns_of, write_rows

FAMILIES: dict[str, dict[str, Any]] = {
    "L2": {"layers": 2},
    "L2, 2 heads": {"layers": 2, "heads": 2},
    "L2, n=4 T=6 d=12": {"layers": 2, "size": (4, 6, 12)},
    "L2, n=2 T=8 d=20": {"layers": 2, "size": (2, 8, 20)},
    "L3": {"layers": 3},
    "L3, 2 heads": {"layers": 3, "heads": 2},
    "L3, n=4 T=6 d=12": {"layers": 3, "size": (4, 6, 12)},
    "L2, V": {"layers": 2, "heads": 1},
    "L3, V": {"layers": 3, "heads": 1},
    "L4": {"layers": 4},
    "L4, 2 heads": {"layers": 4, "heads": 2},
    "L4, n=2 T=8 d=20": {"layers": 4, "size": (2, 8, 20)},
    "L3, V, fading": {"layers": 3, "heads": 1, "fading": True},
    "L3, 2 heads, fading": {"layers": 3, "heads": 2, "fading": True},
    "L4, 2 heads, fading": {"layers": 4, "heads": 2, "fading": True},
    "L2, no residual": {"layers": 2, "residual": False},
    "L3, no residual": {"layers": 3, "residual": False},
    "L2, causal": {"layers": 2, "causal": True},
    "L3, causal": {"layers": 3, "causal": True},
    "L2, masked": {"layers": 2, "masked": True},
    "L3, masked": {"layers": 3, "masked": True},
    "L2, each layer": {"layers": 2, "scope": "each"},
    "L3, each layer": {"layers": 3, "scope": "each"},
    "L2, (K, Q)": {"layers": 2, "attention": "factored"},
    "L3, (K, Q)": {"layers": 3, "attention": "factored"},
    "L2, (K, Q) by Muon": {"layers": 2, "attention": "factored", "muon": 0.05},
    "L2, (K, Q) by Muon, shorter": {"layers": 2, "attention": "factored", "muon": 0.02},
    "L3, (K, Q) by Muon, shorter": {"layers": 3, "attention": "factored", "muon": 0.02},
}

COMMAND = "python benchmarks/stack.py"
COUNTS = (5_000, 15_000)
IN_TABLE = [name for name in FAMILIES if not any(word in name for word in ("n=", "Muon", "fading"))]
IN_TABLE += ["L2, (K, Q) by Muon, shorter", "L3, (K, Q) by Muon, shorter"]


def problems_of(family: dict[str, Any], number: int, seed: int) -> attsvm.Stack:
    n, T, d = family.get("size", (3, 4, 10))
    heads = family.get("heads")
    problem = random_problem(n, T, d, seed=seed, batch=(number,), num_heads=heads)
    generator = np.random.default_rng(seed)
    if family.get("masked"):
        mask = np.ones((number, n, T), bool)
        mask[:, 0, -1] = False
        problem = attsvm.Problem(problem.tokens, problem.labels, problem.queries, problem.head, mask=mask)
    options = {name: family[name] for name in ("residual", "causal") if name in family}
    if heads is not None:
        # orthogonal matrices keep the length of tokens
        options["values"] = np.linalg.qr(generator.standard_normal((heads, family["layers"] - 1, d, d)))[0]
    return attsvm.Stack(problem, family["layers"], **options)


@dataclass(frozen=True)
class Fading(Rule):
    """Descent on weights that shrink by about 3/k in step k, so that what step j has added counts (j/k)³."""

    scale_free = True
    on_each_head = False

    def init(self, params):
        return jnp.zeros(next(iter(params.values())).shape[-1])

    def update(self, updates, state, params, *, numbers, value):
        """−η g − 3/(k + 103) W."""
        gradient, factors = updates.gradient, updates.factors()
        shrinks = 3.0 / (state + 103.0)
        return {name: -factors[name] * g - shrinks * params[name] for name, g in gradient.items()}, state + 1.0


def optimizer_of(family: dict[str, Any]) -> Any:
    if family.get("fading"):
        rate = LearningRate(lambda k: jnp.minimum(0.03 * (1.0 + k / 1000), 1.0))
        return chain(Normalize("all"), rate, Fading(), name="fading", norm=Lp(2.0))
    if family.get("muon"):
        return spectral_descent(Decaying(family["muon"], 100, 0.5))
    if "scope" in family:
        return normalized_gradient_descent(lambda k: 0.03 * (1.0 + k / 1000), scope=family["scope"])
    return None


def trained(family: dict[str, Any], number: int, steps: int, seed: int) -> tuple[attsvm.Stack, attsvm.StackRun]:
    stack = problems_of(family, number, seed)
    counts = [count for count in (*COUNTS, steps // 2, steps) if count <= steps]
    run = stack.train(
        attention=family.get("attention", "combined"),
        steps=steps,
        loss="exponential",
        seed=seed,
        record=sorted({*counts, *(count - 1 for count in counts)}),
        optimizer=optimizer_of(family),
    )
    return stack, run


def at_count(run: attsvm.StackRun, count: int) -> attsvm.StackRun:
    """The run as it was after a number of steps."""
    until = run.history["steps"] <= count
    history = {name: x[until] for name, x in run.history.items()}
    weights = {name: history[name][-1] for name in run.weights}
    made = np.minimum(run.step, count)
    return replace(run, weights=weights, log_scale=history["log_scale"][-1], history=history, step=made)


def errors_and_ratios(stack: attsvm.Stack, run: attsvm.StackRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Direction errors and margin ratios (L, problems), the worst head of each, and which problems are saturated."""
    solutions, margins = stack.solve(run), stack.margins(run)
    # without a residual, all tokens of a layer may be equal, and no margin is defined
    saturated = (np.asarray(stack.saturation(run)) > 0.99) & np.isfinite(margins.reshape(len(margins), -1)).all(axis=1)
    margins = np.where(np.isfinite(margins), margins, 0.0)
    errors, ratios = [], []
    for number, solution in enumerate(solutions):
        assert (np.asarray(solution.status) == "optimal")[saturated].all()
        weights, norm = run.weights[f"W{number}"], solution.norm
        errors.append(_over_heads(attsvm.direction_error(weights, solution, axis=(-2, -1)), stack, np.max))
        ratio = margins[:, number] * solution.value / norm.values(weights * _scale(run, weights), 2)
        ratios.append(_over_heads(ratio, stack, np.min))
    return np.array(errors), np.array(ratios), saturated


def errors_with_ties(stack: attsvm.Stack, run: attsvm.StackRun, errors: np.ndarray) -> np.ndarray:
    """The errors (L, problems), with ties where these are possible."""
    found = errors.copy()
    for number in range(stack.layers - 1):
        layer, margin = stack.layer(run, number), stack.margins(run)[:, number]
        weights, problem = run.weights[f"W{number}"], layer.problem
        logits = np.where(problem.canonical.allowed, token_logits(problem, layer.weights), -np.inf)
        gaps = logits.max(axis=-1, keepdims=True) - logits
        near = gaps <= 0.01 * np.reshape(margin, margin.shape + (1,) * (gaps.ndim - margin.ndim))
        selected = layer.selected | near & problem.canonical.allowed & layer.relaxed[..., None]
        solution = attsvm.solve_svm(problem, selected, run.limit.norm, relaxed=layer.relaxed)
        # the weights over their margin satisfy all constraints but the ties
        possible = margin * solution.value <= 1.001 * solution.norm.values(weights, 2)
        tied = _over_heads(attsvm.direction_error(weights, solution, axis=(-2, -1)), stack, np.max)
        found[number] = np.where(_over_heads(possible, stack, np.min), tied, errors[number])
    return found


def line_of(stack: attsvm.Stack, run: attsvm.StackRun) -> str:
    errors, ratios, saturated = errors_and_ratios(stack, run)
    half = at_count(run, int(run.history["steps"][-1]) // 2)
    later = {name: x - half.weights[name] for name, x in run.weights.items()}
    # the weights keep what the first steps added, while the change since then has the direction of the limit
    slow = (errors.max(axis=0) > 1e-2) & (errors_and_ratios(stack, replace(run, weights=later))[0].max(axis=0) <= 1e-2)
    tied = errors
    if run.attention == "combined" and stack.residual:
        tied = errors_with_ties(stack, run, errors)
    first = stack.layer(run, 0)
    plain = attsvm.solve_svm(first.problem, first.selected, run.limit.norm)
    feasible = np.asarray(plain.status) == "optimal"
    of_plain = attsvm.direction_error(run.weights["W0"][feasible], plain.direction[feasible], axis=(-2, -1))
    apart = stack.margins(run).reshape(len(saturated), -1)[saturated]
    within = apart.max(axis=1) <= 1.01 * apart.min(axis=1)
    errors, ratios, tied = errors[:, saturated], ratios[:, saturated], tied[:, saturated]
    return (
        f"{saturated.sum():4} of {len(saturated):3} saturated; error: median "
        f"{np.median(errors, axis=1).max():.1e}, below 1e-2 {np.mean(errors.max(axis=0) < 1e-2):4.0%}, with "
        f"ties {np.mean(tied.max(axis=0) < 1e-2):4.0%}, slow "
        f"{np.mean(slow[saturated]):4.0%}; margins {np.mean(within):4.0%}; margin ratio: mean {ratios.mean():.4f}, "
        f"least {ratios.mean(axis=1).min():.4f} of a layer; plain: "
        f"{np.median(of_plain):.1e}, infeasible {np.mean(~feasible):.0%}"
    )


def standing_row(stack: attsvm.Stack, run: attsvm.StackRun) -> dict[str, Any]:
    """The row of the table of standings."""
    counts = [*COUNTS, run.steps]
    runs = [at_count(run, count) for count in counts]
    found = [errors_and_ratios(stack, one)[1:] for one in runs]
    ratios = [of_layers.min(axis=0)[saturated] for of_layers, saturated in found]
    enough_from = [i for i in range(len(counts)) if min(np.mean(x) for x in ratios[i:]) >= ENOUGH]
    begins = enough_from[0] if enough_from else 0
    model, (known, *_) = model_of(stack, run), known_limits(run, stack.num_positions)
    changes = np.concatenate([longest_changes(one) for one in runs[begins:]])
    return {
        "command": COMMAND,
        "steps": columns_of(known.steps),
        "attention": model.attention,
        "norm": known.norm.name,
        "model": model.name,
        "heads": model.heads,
        "columns": "all",
        "decay": 0.0,
        "found": "measured" if enough_from else "none",
        "measure": "margin ratio",
        "first": [float(np.mean(ratios[begins])), float(np.min(ratios[begins]))],
        "last": [float(np.mean(ratios[-1])), float(np.min(ratios[-1]))],
        "num_steps": [counts[begins], counts[-1]],
        "logit_change": [float(changes.min()), float(changes.max())],
    }


def _scale(run: attsvm.StackRun, weights: np.ndarray) -> np.ndarray:
    scale = np.exp(np.minimum(run.log_scale, 230.0))
    return np.reshape(scale, np.shape(scale) + (1,) * (weights.ndim - np.ndim(scale)))


def _over_heads(x: Any, stack: attsvm.Stack, reduction: Any) -> np.ndarray:
    return np.asarray(x) if stack.problem.num_heads is None else reduction(np.asarray(x), axis=-1)


def induction(number: int, steps: int, seed: int, n: int = 48, T: int = 6, words: int = 6) -> str:
    generator = np.random.default_rng(seed)
    d = words + T + words
    tokens, queries = np.zeros((number, n, T, d)), np.zeros((number, n, d))
    first, labels = np.zeros((number, n), int), np.zeros((number, n), int)
    for at in np.ndindex(number, n):
        drawn, first[at] = generator.permutation(words)[: T - 1], generator.integers(T - 2)
        said = [*drawn, drawn[first[at]]]
        tokens[at][np.arange(T), said] = 1.0
        tokens[at][np.arange(T), words + np.arange(T)] = 1.0
        queries[at][said[-1]] = 1.0
        labels[at] = said[first[at] + 1]
    copies, head = np.zeros((1, d, d)), np.zeros((words, d))
    copies[0, words + T :, :words] = np.eye(words)
    head[:, :words] = 3.0 * np.eye(words)
    stack = attsvm.Stack(attsvm.Problem(tokens, labels, queries, head), 2, causal=True, values=copies)
    # random weights of the usual size end elsewhere in some runs
    init = {name: 0.01 * generator.standard_normal((number, d, d)) for name in ("W0", "W1")}
    run = stack.train(steps=steps, loss="cross_entropy", init=init, record=1)
    lower, upper = (stack.layer(run, layer).selected.argmax(axis=-1) for layer in (0, 1))
    at_b = np.take_along_axis(lower, (first + 1)[..., None], axis=-1)[..., 0]
    right = ((upper == first + 1) & (at_b == first)).all(axis=-1)
    saturated = np.asarray(stack.saturation(run)) > 0.99
    return f"induction: path right in {right.sum()} of {number} runs, {saturated.sum()} saturated on the path"


def seconds_a_step(repeats: int = 5) -> Iterator[str]:
    """Time of a step of L layers over L times that of one self-attention layer of these sizes; 64 trials, one core."""
    descent = normalized_gradient_descent(0.1)
    for n, T, d in ((3, 4, 10), (8, 8, 16)):
        layer = random_problem(n, T, d, seed=0, num_queries=T, self_attention=True, batch=(64,))
        problem = random_problem(n, T, d, seed=0, batch=(64,))
        one = _step(partial(attsvm.train, layer, record=1, optimizer=descent), repeats)
        ratios = []
        for L in (2, 3, 4):
            several = _step(partial(attsvm.Stack(problem, L).train, record=1, optimizer=descent), repeats)
            ratios.append(f"L = {L}: {several / one / L:.2f} L")
        yield f"n = {n}, T = {T}, d = {d}: one layer {1e6 * one:.0f} us; {', '.join(ratios)}"


def _step(train: Callable[..., Any], repeats: int) -> float:
    def seconds(steps: int) -> float:
        began = time.process_time()
        train(steps=steps)
        return time.process_time() - began

    seconds(2)
    return float(np.median([(seconds(402) - seconds(2)) / 400 for _ in range(repeats)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=2000)
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--families", nargs="*", choices=FAMILIES)
    parser.add_argument("--settle", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--induction", action="store_true")
    arguments = parser.parse_args()
    os.environ["ATTSVM_THREADS"] = "1"
    if arguments.time:
        for line in seconds_a_step():
            print(line, flush=True)
        return
    if arguments.induction:
        print(induction(20, 2_000, arguments.seed))
        return
    rows = []
    for name in arguments.families or (IN_TABLE if arguments.write else FAMILIES):
        family = FAMILIES[name]
        stack, run = trained(family, arguments.problems, arguments.steps, arguments.seed)
        print(f"{name:28}{line_of(stack, run)}", flush=True)
        if arguments.write:
            rows.append(standing_row(stack, run))
            print(rows[-1], flush=True)
        if arguments.settle and run.attention == "combined":
            short = normalized_gradient_descent(0.1, scope="all")
            run = stack.train(
                init=run, optimizer=short, steps=arguments.settle, loss="exponential", seed=arguments.seed
            )
            print(f"{'  then short steps':28}{line_of(stack, run)}", flush=True)
    if arguments.write:
        write_rows(rows, COMMAND, all_of_command=not arguments.families)


if __name__ == "__main__":
    main()
