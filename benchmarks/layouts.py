"""Which norm of all heads' weights a layout of keys and queries minimises, under several steps.

Layouts of H = 4 heads W_h = K_h Q_h': a K for each head (MHA), one for each pair of heads (GQA), one for all (MQA), and
W_h = C U_h Q_h' with one C (MLA). Steps: gradient descent with one norm over all gradients; spectral steps, rows and
columns, where one matrix is that of a head, those of a group of heads, those of all heads ("whole"), or all keys and
queries ("[K, Q]": queries, keys and values of a model in one weight, of which the values are fixed).

    python benchmarks/layouts.py [NAME ...]      trains 24 problems with each, and prints the table (40 minutes)
    python benchmarks/layouts.py --starts        gradient descent on MLA from 8 starts: does it end at one value?

Each norm is that of a semidefinite program: the least t for which positive semidefinite matrices M, one for each group,
have the blocks W_h beside their diagonal, and for which the sizes of the diagonal blocks A = KK' and B_h = Q_hQ_h' are
at most t. For columns it is a bound from below, because it need not be attained with a finite number of columns. A
margin ratio is the smallest margin over the norm, relative to the largest possible (CVXPY with Clarabel).
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm._utils.contractions import contract
from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, Rule, chain, normalized_gradient_descent
from attsvm.optimizers.matrix_directions import MatrixDirection, PolarDirection, UnitColumnDirection, UnitRowDirection
from attsvm.optimizers.matrix_steps import map_matrices
from attsvm.optimizers.transformations import LearningRate
from attsvm.training import ATTENTIONS
from attsvm.training.attention.factored import FactoredAttention
from cases import markdown

HEADS, N, T, D, PROBLEMS, SEED = 4, 3, 4, 5, 24, 45
LAYOUTS = {"MHA": 4, "GQA": 2, "MQA": 1, "MLA": 1}
"""The number of keys that heads share."""

STORE = Path("out/layouts.json")


@dataclass(frozen=True)
class Steps(Rule):
    """Steps along a direction of matrices: of a head, of a group of heads, of all heads, or of all keys and queries."""

    direction: MatrixDirection
    scope: str
    groups: int

    scale_free = True

    @property
    def on_each_head(self) -> bool:
        return self.scope == "head"

    def update(self, updates, state, params, *, numbers, value):
        """−η D."""
        gradient, lengths = updates.gradient, updates.lengths
        if self.scope == "head":
            moves = map_matrices(self._of, gradient, "heads")
        elif self.scope == "[K, Q]":
            common = updates.resolved().regrouped("all").gradient
            sides = [g.reshape(g.shape[0], -1, g.shape[-1]) for g in common.values()]
            ends = np.cumsum([side.shape[1] for side in sides])[:-1]
            moved = jnp.split(self._of(jnp.concatenate(sides, axis=1)), ends, axis=1)
            moves = {name: x.reshape(gradient[name].shape) for name, x in zip(gradient, moved, strict=True)}
        else:
            moves = {name: self._grouped(g) for name, g in gradient.items()}
        return {name: -lengths[name] * moves[name] for name in gradient}, state

    def _grouped(self, g):
        """(r, c, heads, B): the heads of a group side by side, or all."""
        rows, columns, _, trials = g.shape
        number = self.groups if self.scope == "group" else 1
        apart = jnp.moveaxis(g.reshape(rows, columns, number, -1, trials), 2, 3)
        moved = self._of(apart.reshape(rows, -1, number * trials)).reshape(apart.shape)
        return jnp.moveaxis(moved, 3, 2).reshape(g.shape)

    def _of(self, matrices):
        largest = jnp.max(jnp.abs(matrices), axis=(0, 1))
        return self.direction.of(matrices / jnp.where(largest > 0, largest, 1.0))


@dataclass(frozen=True)
class Latent(FactoredAttention):
    """s_it = k_it' C U Q' z_i, with C, here by the name K, shared by all heads."""

    name = "latent"

    def shapes(self, problem):
        return {"K": (D, self.rank), "U": (self.rank, self.rank), "Q": (D, self.rank)}

    def logits(self, parameters, data):
        projected = contract("em,nqe->nqm", parameters["Q"], data.queries)
        latent = contract("rm,nqm->nqr", parameters["U"], projected)
        return contract("ntk,nqk->nqt", data.keys, contract("kr,nqr->nqk", parameters["K"], latent))

    def weights(self, parameters):
        keys = self._of_each_head(parameters["K"]) @ parameters["U"]
        return keys @ np.swapaxes(parameters["Q"], -1, -2)


ATTENTIONS.register("latent", Latent)

DIRECTIONS = {
    "spectral": (PolarDirection(), 0.05),
    "rows": (UnitRowDirection(), 0.02),
    "columns": (UnitColumnDirection(), 0.02),
}
SCOPES = ("head", "group", "whole", "[K, Q]")
# a column is the same in every scope
STEPS = [
    "gradient descent",
    *(f"{kind}, {scope}" for kind in ("spectral", "rows") for scope in SCOPES),
    "columns, head",
]


def optimizer(layout: str, steps: str) -> Any:
    """The optimizer of a row; steps on factors change a logit by about as much at the end as at the beginning."""
    if steps == "gradient descent":
        return normalized_gradient_descent(Decaying(0.03, 4000), scope="all", relative=True)
    kind, scope = steps.split(", ", 1)
    direction, rate = DIRECTIONS[kind]
    # the sizes of f factors grow like the f-th root of the number of steps; those of three change logits more
    decaying = Decaying(0.3 * rate, 100, 2 / 3) if layout == "MLA" else Decaying(rate, 100, 1 / 2)
    return chain(LearningRate(decaying), Steps(direction, scope, LAYOUTS[layout]))


NUMBER = {"gradient descent": 60_000, "spectral": 30_000, "rows": 60_000, "columns": 60_000}


def names() -> list[str]:
    """Layout and steps, without those that are the same as others."""
    found = []
    for layout, steps in ((layout, steps) for layout in LAYOUTS for steps in STEPS):
        if "group" in steps and layout != "GQA":
            continue
        if layout == "MLA" and steps not in ("gradient descent", "spectral, head", "spectral, whole"):
            continue
        found.append(f"{layout}: {steps}")
    return found


class Norm:
    """The norm of [W_1 … W_H] that steps of a kind induce on products whose keys are shared in groups."""

    def __init__(self, groups: int, steps: str) -> None:
        self.groups, self.steps = groups, steps

    @property
    def name(self) -> str:
        return f"{self.steps}; {self.groups} keys"

    def _program(self, weights: list[Any]) -> tuple[Any, list[Any]]:
        """t, and the constraints that it is at least the norm."""
        t, each = cp.Variable(), HEADS // self.groups
        keys, queries, constraints = [], [], []
        for g in range(self.groups):
            whole = cp.Variable((D * (1 + each), D * (1 + each)), PSD=True)
            blocks = [slice(D * k, D * (k + 1)) for k in range(1 + each)]
            keys.append(whole[blocks[0], blocks[0]])
            queries.append([whole[of, of] for of in blocks[1:]])
            constraints += [whole[blocks[0], of] == weights[g * each + k] for k, of in enumerate(blocks[1:])]
        heads = [block for group in queries for block in group]
        kind, _, scope = self.steps.partition(", ")
        size = {"spectral": cp.lambda_max, "rows": lambda x: cp.max(cp.diag(x)), "columns": cp.trace}.get(
            kind, cp.trace
        )
        matrices = {
            "head": [*keys, *heads],
            "group": [*keys, *(sum(group) for group in queries)],
            "whole": [sum(keys), sum(heads)],
            "[K, Q]": [sum(keys) + sum(heads)],
            # half of the sum of all squares
            "": [(sum(keys) + sum(heads)) / 2],
        }[scope]
        return t, [*constraints, *(size(matrix) <= t for matrix in matrices)]

    def least(self, rows: np.ndarray) -> float:
        """The least norm of weights with margins of 1 on rows (H, R, d, d)."""
        if not hasattr(self, "_svm"):
            self._rows = [cp.Parameter((rows.shape[1], D * D)) for _ in range(HEADS)]
            weights = [cp.Variable((D, D)) for _ in range(HEADS)]
            t, constraints = self._program(weights)
            margins = [of @ cp.vec(W, order="C") >= 1 for of, W in zip(self._rows, weights, strict=True)]
            self._svm = cp.Problem(cp.Minimize(t), [*constraints, *margins])
        for parameter, value in zip(self._rows, rows, strict=True):
            parameter.value = value.reshape(len(value), -1)
        return float(self._svm.solve(solver=cp.CLARABEL))

    def size(self, weights: np.ndarray) -> float:
        """The norm of weights (H, d, d)."""
        if not hasattr(self, "_norm"):
            self._weights = [cp.Parameter((D, D)) for _ in range(HEADS)]
            t, constraints = self._program(self._weights)
            self._norm = cp.Problem(cp.Minimize(t), constraints)
        for parameter, value in zip(self._weights, weights, strict=True):
            parameter.value = value
        return float(self._norm.solve(solver=cp.CLARABEL))


def own_norm(name: str) -> str:
    """The name of the norm that a row is compared with.

    The products of three factors of full rank, each of spectral norm 1, are all matrices of norm 1, so that spectral
    steps on each matrix have the same norm in MLA. If all U_h are one matrix and all Q_h are one, C can be the identity
    and U_h is a K of its own. For gradient descent on MLA it is the norm of two factors.
    """
    layout, steps = name.split(": ")
    return Norm(4 if name == "MLA: spectral, whole" else LAYOUTS[layout], steps).name


def candidates(name: str) -> list[Norm]:
    """The norms of other steps on the same layout, and of the same steps on the others."""
    layout, steps = name.split(": ")
    others = ("gradient descent", "spectral, head", "spectral, whole", "rows, head", "rows, whole", "columns, head")
    found = {(LAYOUTS[layout], other) for other in others} | {(groups, steps) for groups in LAYOUTS.values()}
    # groups that are single heads, or all heads
    found = {(g, other.replace("group", {4: "head", 1: "whole"}.get(g, "group"))) for g, other in found}
    return [_norm(groups, other) for groups, other in sorted(found)]


_norms: dict[tuple[int, str], Norm] = {}


def _norm(groups: int, steps: str) -> Norm:
    return _norms.setdefault((groups, steps), Norm(groups, steps))


def measured(name: str) -> dict[str, Any]:
    """Train the problems, and measure the margin ratios of those that are saturated, in all candidate norms."""
    layout, steps = name.split(": ")
    problem = random_problem(N, T, D, seed=SEED, num_heads=HEADS, key_groups=LAYOUTS[layout], batch=(PROBLEMS,))
    number, begin = NUMBER[steps.split(",")[0]], time.perf_counter()
    run = attsvm.train(
        problem,
        attention="latent" if layout == "MLA" else "factored",
        optimizer=optimizer(layout, steps),
        steps=number,
        record=[number // 2, number],
        seed=SEED,
    )
    print(f"{name}: {time.perf_counter() - begin:.0f} s, {run.probability.min(axis=(1, 2)).min():.4f}", flush=True)
    saturated = run.probability.min(axis=(1, 2)) > 0.999
    norms, ratios = candidates(name), []
    for i in np.flatnonzero(saturated):
        rows, weights = rows_of(problem, run.selected[i], i), run.weights[i] / np.abs(run.weights[i]).max()
        margin = np.einsum("hrde,hde->hr", rows, weights).min()
        ratios.append([margin / norm.size(weights) * norm.least(rows) for norm in norms])
    print(f"{time.perf_counter() - begin:.0f} s", flush=True)
    change = run.history["logit_change"]
    return {
        "norms": [norm.name for norm in norms],
        "ratios": ratios,
        "saturated": int(saturated.sum()),
        "steps": number,
        "logit_change": [float(change.min()), float(change.max())],
    }


def rows_of(problem: attsvm.Problem, selected: np.ndarray, i: int) -> np.ndarray:
    """(k_α − k_t) z' of each head, query and dropped token, shape (H, R, d, d)."""
    tokens, queries, found = problem.tokens[i, 0], problem.queries[i, 0], []
    for of_head in selected:
        found.append(
            [
                np.outer(tokens[j, of_head[j]] - tokens[j, t], queries[j])
                for j in range(N)
                for t in range(T)
                if t != of_head[j]
            ]
        )
    return np.array(found)


def starts(steps: int = 30_000, number: int = 8) -> None:
    """Gradient descent on MLA: the value ⅓(‖C‖² + Σ‖U_h‖² + Σ‖Q_h‖²) at margins of 1, for starts with one selection."""
    for heads in (1, 2, 4):
        problem = random_problem(N, T, D, seed=SEED + 1, num_heads=heads, key_groups=1, batch=(PROBLEMS,))
        generator = np.random.default_rng(SEED)
        shapes = {"K": (1, D, D), "U": (heads, D, D), "Q": (heads, D, D)}
        init = {k: 0.3 * generator.normal(size=(number, PROBLEMS, *x)) / np.sqrt(D) for k, x in shapes.items()}
        descent = optimizer("MLA", "gradient descent")
        run = attsvm.train(problem, attention="latent", optimizer=descent, init=init, steps=steps, record=1)
        size = sum((run.parameters[k] ** 2).sum(axis=(-3, -2, -1)) for k in shapes) / 3
        values: dict[tuple[Any, ...], list[float]] = {}
        for s, i in np.ndindex(number, PROBLEMS):
            selected = run.selected[s, i]
            margin = np.einsum("hrde,hde->hr", rows_of(problem, selected, i), run.weights[s, i]).min()
            if run.probability[s, i].min() > 0.999:
                # margins have the degree 3 in the factors
                values.setdefault((i, *selected.ravel()), []).append(size[s, i] / margin ** (2 / 3))
        same = [np.array(x) / min(x) for x in values.values() if len(x) > 1]
        above = np.concatenate(same)
        print(
            f"{heads} heads: {len(same)} selections that several of {number} starts reach; {(above > 1.01).mean():.0%} "
            f"of {len(above)} runs end more than 1 % above the least value, the highest by {above.max() - 1:.0%}; "
            f"{np.mean([x.max() > 1.01 for x in same]):.0%} of the selections have several values",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of rows; all by default")
    parser.add_argument("--starts", action="store_true")
    arguments = parser.parse_args()
    if arguments.starts:
        starts()
        return
    stored = json.loads(STORE.read_text()) if STORE.exists() else {}
    for name in names():
        if name not in stored and (not arguments.names or any(part in name for part in arguments.names)):
            stored[name] = measured(name)
            STORE.parent.mkdir(exist_ok=True)
            STORE.write_text(json.dumps(stored))
    print(
        markdown(
            ["layout", "steps", "number", "saturated", "ratio in the own norm", "largest", "next norm, mean"],
            table(stored),
        )
    )


def table(stored: dict[str, Any]) -> list[list[str]]:
    """Of each row: the ratio in the own norm, mean / least, how often it is the largest up to 0.01, and the next."""
    lines = []
    for name, found in stored.items():
        layout, steps = name.split(": ")
        kept = [k for k, norm in enumerate(found["norms"]) if norm not in equal_to(name)]
        ratios, names = np.array(found["ratios"])[:, kept], [found["norms"][k] for k in kept]
        own = names.index(own_norm(name))
        others = np.delete(ratios, own, axis=1)
        following = int(np.argmax(others.mean(axis=0)))
        next_name = [one for k, one in enumerate(names) if k != own][following]
        lines.append(
            [
                layout,
                steps,
                f"{found['steps']:,}",
                f"{found['saturated']} of {PROBLEMS}",
                f"{ratios[:, own].mean():.3f} / {ratios[:, own].min():.3f}",
                # norms that nearly share a solution differ by less, and programs are solved to about 1e-4
                f"{(ratios[:, own] >= others.max(axis=1) - 1e-2).mean():.0%}",
                f"{next_name}: {others[:, following].mean():.3f}",
            ]
        )
    return lines


def equal_to(name: str) -> set[str]:
    """Norms that are the same as that of a row, or that its Att-SVM has the least value of, too."""
    steps = name.split(": ")[1]
    if steps == "spectral, head":
        return {Norm(groups, steps).name for groups in LAYOUTS.values()} - {own_norm(name)}
    # each head has its own least nuclear norm, so that the largest of them is the least, too
    return {Norm(4, "columns, head").name} if name == "MHA: gradient descent" else set()


if __name__ == "__main__":
    main()
