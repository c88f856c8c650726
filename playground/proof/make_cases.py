"""Write random scenes of the playground and attsvm's answers to them, as JSON.

``npm run proof`` in ``playground/`` compares the mathematics of the page with them:

    python playground/proof/make_cases.py out/playground_cases.json
    cd playground && CASES=../out/playground_cases.json npm run proof

Every scene lies in the plane, as those of the page do. ``--scale 0.05`` draws a twentieth of the scenes. The tests of
the page use those of ``make_cases.py playground/tests/cases.json --every 47``.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import attsvm
from attsvm import optimizers

NORMS = ("l1", 1.1, 1.75, "frobenius", 3.0, 6.0, "linf", "nuclear", "spectral")
SHAPES = ((1, 3), (2, 3), (2, 5), (3, 4), (6, 8))  # n, T
ATTENTIONS = ("prompt", "combined", "factored")
LOSSES = ("logistic", "exponential", "linear")
PATH_STEPS = 1000
PATH_RATE = 0.03


def schedule(name: str, rate: float) -> Any:
    """The learning rate of the page's three schedules."""
    changes = {"constant": 0.0, "growing": 1.0, "decaying": -1.0}
    if name == "constant":
        return rate
    return lambda step: rate * (1.0 + step / 100.0) ** changes[name]


def make_optimizer(settings: dict[str, Any]) -> Any:
    """The optimizer of attsvm with the settings of the page."""
    rate = schedule(settings["schedule"], settings["rate"])
    makers = {
        "gradient_descent": lambda: optimizers.gradient_descent(rate),
        "normalized_gradient_descent": lambda: optimizers.normalized_gradient_descent(rate),
        "mirror_descent": lambda: optimizers.mirror_descent(p=settings["p"], learning_rate=rate),
        "sign": lambda: optimizers.steepest_descent(norm="linf", learning_rate=rate),
        "coordinate": lambda: optimizers.steepest_descent(norm="l1", learning_rate=rate),
        "spectral": lambda: optimizers.steepest_descent(norm="spectral", learning_rate=rate),
        "momentum": lambda: optimizers.momentum(optimizers.normalized_gradient_descent(rate), 0.9),
        "adam": lambda: optimizers.adam(rate),
    }
    return makers[settings["name"]]()


def every_optimizer(rate: float) -> Iterator[dict[str, Any]]:
    """Each optimizer of the page, mirror descent with three exponents."""
    for name in (
        "gradient_descent",
        "normalized_gradient_descent",
        "sign",
        "coordinate",
        "spectral",
        "momentum",
        "adam",
    ):
        yield {"name": name, "rate": rate, "schedule": "constant", "p": 2.0}
    for p, kind in ((1.1, "constant"), (1.75, "decaying"), (3.0, "growing")):
        yield {"name": "mirror_descent", "rate": rate, "schedule": kind, "p": p}


def draw(generator: np.random.Generator, n: int, T: int, queries: bool, batch: int) -> dict[str, np.ndarray]:
    """Random scenes in the plane."""
    return {
        "tokens": generator.standard_normal((batch, n, T, 2)),
        "labels": generator.choice([-1.0, 1.0], (batch, n)),
        "head": generator.standard_normal((batch, 2)),
        **({"queries": generator.standard_normal((batch, n, 2))} if queries else {}),
    }


def one(arrays: dict[str, np.ndarray], b: int) -> dict[str, Any]:
    """One scene of a batch, as JSON-able lists."""
    return {name: array[b].tolist() for name, array in arrays.items()}


def svm_cases(generator: np.random.Generator, number: int) -> Iterator[dict[str, Any]]:
    """Selections, feasible ones and random ones, and the Att-SVM in each norm."""
    kinds = [(norm, queries, shape) for norm in NORMS for queries in (False, True) for shape in SHAPES]
    for k, (norm, queries, (n, T)) in enumerate(kinds):
        batch = (number * (k + 1)) // len(kinds) - (number * k) // len(kinds)
        if batch == 0:
            continue
        arrays = draw(generator, n, T, queries, batch)
        problem = attsvm.Problem(**arrays)
        # what some weights select can be selected; every third selection is drawn at random
        weights = generator.standard_normal((batch, 2, 2) if queries else (batch, 2))
        directions = np.einsum("bke,bne->bnk", weights, arrays["queries"]) if queries else weights[:, None]
        selected = np.argmax(
            np.einsum("bntk,bnk->bnt", arrays["tokens"], np.broadcast_to(directions, (batch, n, 2))), -1
        )
        selected[::3] = generator.integers(0, T, selected[::3].shape)
        solution = attsvm.solve_svm(problem, selected, norm=norm, tol=1e-11)
        for b in range(batch):
            infeasible = solution.status[b] == "infeasible"
            yield {
                "problem": one(arrays, b),
                "selected": selected[b].tolist(),
                "norm": norm,
                "status": "infeasible" if infeasible else "optimal",
                "value": None if infeasible else float(solution.value[b]),
                "gap": None if infeasible else float(solution.gap[b]),
                "direction": None if infeasible else np.ravel(solution.direction[b]).tolist(),
                "dual": solution.dual[b].tolist(),
                "support": solution.support[b].tolist(),
            }


def start_of(generator: np.random.Generator, attention: str, batch: int, radius: np.ndarray | float) -> dict[str, Any]:
    """Random initial parameters of a size."""
    shapes = {"prompt": {"p": (2,)}, "combined": {"W": (2, 2)}, "factored": {"K": (2, 2), "Q": (2, 2)}}[attention]
    drawn = {name: generator.standard_normal((batch, *shape)) for name, shape in shapes.items()}
    return {name: x * np.reshape(radius, (-1, *(1,) * (x.ndim - 1))) for name, x in drawn.items()}


def as_lists(parameters: dict[str, np.ndarray], b: int, train_head: bool) -> dict[str, Any]:
    """The parameters of one trial, those of the attention apart from the head's."""
    names = [name for name in parameters if name != "v"]
    written = {"attention": [np.ravel(parameters[name][b]).tolist() for name in names]}
    return written | ({"head": np.ravel(parameters["v"][b]).tolist()} if train_head else {})


def step_cases(generator: np.random.Generator, number: int) -> Iterator[dict[str, Any]]:
    """Single steps of every optimizer from states of all sizes, from uniform to saturated softmax.

    Where the gradient is nearly of rank one, its polar factor depends on the last digits: ``change`` says how far one
    unit in the last place of the tokens moves the library's own step.
    """
    for settings in every_optimizer(0.1):
        for k, attention in enumerate(ATTENTIONS):
            for train_head in (False, True):
                n, T = SHAPES[(k + 2 * train_head) % len(SHAPES)]
                loss = LOSSES[(k + train_head) % 3]
                batch = max(1, round(number / 6))
                arrays = draw(generator, n, T, attention != "prompt", batch)
                radius = 10.0 ** generator.uniform(-2, 2 if attention != "factored" else 1, batch)
                init = start_of(generator, attention, batch, radius)
                run, moved = (
                    attsvm.train(
                        attsvm.Problem(**(arrays | {"tokens": tokens})), attention=attention,
                        optimizer=make_optimizer(settings), steps=1, loss=loss, train_head=train_head, init=init,
                        record=[1],
                    )
                    for tokens in (arrays["tokens"], np.nextafter(arrays["tokens"], np.inf))
                )  # fmt: skip
                change = np.zeros(batch)
                for name, x in run.parameters.items():
                    inner = tuple(range(1, x.ndim))
                    apart = np.max(np.abs(x - moved.parameters[name]), inner) / np.max(np.abs(x), inner)
                    change = np.maximum(change, apart)
                for b in range(batch):
                    yield {
                        "problem": one(arrays, b),
                        "training": {
                            "attention": attention, "loss": loss, "trainHead": train_head, "optimizer": settings
                        },
                        "start": as_lists(init, b, False)["attention"],
                        "status": str(run.status[b]),
                        "end": as_lists(run.parameters, b, train_head),
                        "change": float(change[b]),
                    }  # fmt: skip


def path_cases(generator: np.random.Generator, number: int) -> Iterator[dict[str, Any]]:
    """Paths of 1,000 steps, and how far a change of the tokens by one unit in the last place moves their end."""
    settings = list(every_optimizer(PATH_RATE))
    for settings_ in settings:
        for k, attention in enumerate(ATTENTIONS):
            batch = max(1, math.ceil(number / len(settings) / len(ATTENTIONS)))
            n, T = SHAPES[1 + k]
            arrays = draw(generator, n, T, attention != "prompt", batch)
            init = start_of(generator, attention, batch, 0.5)
            runs = [
                attsvm.train(
                    attsvm.Problem(**(arrays | {"tokens": tokens})), attention=attention,
                    optimizer=make_optimizer(settings_), steps=PATH_STEPS, loss="logistic", init=init,
                    record=[10, 100, PATH_STEPS],
                )
                for tokens in (arrays["tokens"], np.nextafter(arrays["tokens"], np.inf))
            ]  # fmt: skip
            weights, moved = (np.asarray(run.history["weights"]) for run in runs)
            inner = tuple(range(2, weights.ndim))
            change = np.max(np.abs(weights - moved), axis=inner) / np.max(np.abs(weights), axis=inner)
            for b in range(batch):
                yield {
                    "problem": one(arrays, b),
                    "training": {
                        "attention": attention, "loss": "logistic", "trainHead": False, "optimizer": settings_
                    },
                    "start": as_lists(init, b, False)["attention"],
                    "steps": [10, 100, PATH_STEPS],
                    "weights": [np.ravel(w[b]).tolist() for w in weights],
                    "change": float(change[:, b].max()),
                }  # fmt: skip


PARTS = {"svm": svm_cases, "steps": step_cases, "paths": path_cases}


def make_cases(scale: float, parts: Sequence[str] = tuple(PARTS), seed: int = 0) -> dict[str, Any]:
    """1,000 Att-SVMs, 1,000 single steps of every optimizer and 1,000 paths, times the scale; [] for other parts."""
    number = max(1, round(1000 * scale))
    return {name: list(PARTS[name](np.random.default_rng(seed), number)) if name in parts else [] for name in PARTS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the 1,000 scenes of each kind")
    parser.add_argument(
        "--every", type=int, default=1, help="keep every so many-th scene alone, as the page's tests do"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to write; all by default")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cases = make_cases(arguments.scale, arguments.parts)
    kept = {name: of[:: arguments.every] for name, of in cases.items()}
    arguments.out.write_text(json.dumps(kept))
