"""Sinks, trained sink logits, position biases and offsets: where training ends, and rows of the table of standings.

    python benchmarks/attention_today_blocks.py [KIND ...] [--write]

Trains 60 random problems of each kind, 20 of each of three sizes (n, T, d), and compares them with the Att-SVM of the
tokens that they select. W and b have one norm under steps on W. Beside K and Q, b vanishes and the Att-SVM is the one
without b, in the nuclear norm. Offsets are those of ALiBi with slope 1. Prints the median and the largest direction
error and the mean and the least margin ratio after the last step, and for K and Q the largest |b|/‖KQ'‖. ``--write``
replaces the rows on biases and offsets in src/attsvm/theory/standings.toml: a row begins at the first number of steps
from which the mean margin ratio is at least 0.95 for every kind, optimizer and size.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import attsvm
from attsvm import optimizers as o
from attsvm.datasets import random_problem
from attsvm.theory.standing import limit_at
from attsvm.training import ATTENTIONS
from cases import markdown
from standings import ENOUGH, columns_of, is_rising, write_rows

COMMAND = "python benchmarks/attention_today_blocks.py"
SEED, PROBLEMS = 62_000, 20
SIZES = ((4, 5, 6), (6, 8, 10), (8, 10, 16))
OF_EACH_QUERY = ((3, 4, 6), (3, 5, 8), (4, 6, 12))
"""The sizes for relative positions and offsets, where every token is a query, too."""
COUNTS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)


class Kind(NamedTuple):
    """What is trained: the attention, the norm of the limit, and optimizers."""

    name: str
    attention: str
    norm: str
    optimizers: tuple[tuple[str, Callable[[], Any]], ...]


NORMALIZED = (
    ("normalized GD, growing steps", lambda: o.normalized_gradient_descent(o.Growing(0.1, 1000))),
    ("normalized GD", lambda: o.normalized_gradient_descent(0.1)),
)
MIRROR = (("mirror descent, p = 1.75", lambda: o.mirror_descent(p=1.75, learning_rate=0.1)),)
KINDS = (
    *(
        Kind(name, "combined", "frobenius", NORMALIZED)
        for name in ("sink", "sink logit", "absolute", "relative", "offsets")
    ),
    *(Kind(name, "combined", "l1.75", MIRROR) for name in ("sink logit", "absolute", "relative")),
    *(
        Kind(name, "factored", "nuclear", (("normalized GD, relative steps", lambda: None),))
        for name in ("sink", "sink logit", "absolute")
    ),
)


class Measured(NamedTuple):
    """The numbers of one configuration: at each count, and at the end."""

    ratios: np.ndarray  # (counts, problems)
    changes: np.ndarray  # (counts, problems)
    errors: np.ndarray  # (problems,)
    biases: float  # the largest |b|/‖W‖


def problems(kind: str, size: tuple[int, int, int]) -> attsvm.Problem:
    n, T, d = size
    plain = random_problem(n, T, d, seed=SEED, batch=(PROBLEMS,))
    if kind == "absolute":
        return plain.with_position_bias("absolute")
    if kind in ("sink", "sink logit"):
        return plain.with_sink(trained=kind == "sink logit")
    # a causal layer: every token is a query, with a label of its own
    generator = np.random.default_rng(SEED)
    labels, causal = generator.choice([-1.0, 1.0], (PROBLEMS, n, T)), np.tril(np.ones((T, T), bool))
    mask = np.broadcast_to(causal, (n, T, T))
    arrays = {"tokens": plain.tokens, "labels": labels, "queries": plain.tokens, "head": plain.head, "mask": mask}
    if kind == "offsets":
        distances = np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
        return attsvm.Problem(**arrays, offsets=-np.broadcast_to(distances, (n, T, T)))
    return attsvm.Problem(**arrays).with_position_bias("relative")


def measured(kind: Kind, size: tuple[int, int, int], make: Callable[[], Any]) -> Measured:
    problem = problems(kind.name, size)
    records = sorted({*COUNTS, *(count - 1 for count in COUNTS)})
    run = attsvm.train(problem, attention=kind.attention, optimizer=make(), steps=COUNTS[-1], record=records, seed=SEED)
    at = np.searchsorted(run.history["steps"], COUNTS)
    # beside K and Q the biases vanish: the Att-SVM is the one without them
    limit = problem
    if kind.attention == "factored" and problem.num_biases:
        limit = attsvm.Problem(**{name: x for name, x in problem.arrays().items() if name != "bias_index"})

    def own(weights: np.ndarray) -> np.ndarray:
        return weights if limit is problem else problem.blocks(weights)[0]

    ratios = [
        attsvm.margin_ratio(limit, own(run.history["weights"][r]), run.history["selected"][r], kind.norm) for r in at
    ]
    direction = np.asarray(attsvm.solve_svm(limit, run.selected, norm=kind.norm).direction)
    W, b = problem.blocks(run.weights)
    return Measured(
        np.array(ratios),
        run.history["logit_change"][at],
        np.array([attsvm.direction_error(w, v) for w, v in zip(own(run.weights), direction, strict=True)]),
        float(np.max(np.linalg.norm(b, axis=-1) / np.linalg.norm(W, axis=(-2, -1)))) if b.size else 0.0,
    )


def rows(found: dict[tuple[Kind, str], list[Measured]]) -> Iterator[dict[str, Any]]:
    """One row for each attention with biases and norm, over all kinds of biases, optimizers and sizes."""
    terms = {key: problems(key[0].name, SIZES[0]).other_terms for key in found}
    for attention, norm, other in dict.fromkeys(
        (kind.attention, kind.norm, other) for (kind, _), other in terms.items()
    ):
        if not other:  # a sink is a token: the rows without one are about it, too
            continue
        of_row = attention, norm, other
        own = {key: x for key, x in found.items() if (key[0].attention, key[0].norm, terms[key]) == of_row}
        each = [one for of_sizes in own.values() for one in of_sizes]
        means = [min(one.ratios[i].mean() for one in each) for i in range(len(COUNTS))]
        enough = [i for i in range(len(COUNTS)) if min(means[i:]) >= ENOUGH]
        begin = enough[0] if enough else 0
        kind, name = next(iter(own))
        problem, layer = problems(kind.name, SIZES[0]), ATTENTIONS.find(attention)
        make = next(make for other, make in kind.optimizers if other == name)
        parametrization = layer.of(problem, None)
        steps = (make() or parametrization.default_optimizer()).steps
        largest = float(max(one.changes[-1].max() for one in each))
        steps = limit_at(parametrization.limit(steps, problem), largest).steps.family
        yield {
            "command": COMMAND,
            "steps": columns_of(steps),
            "attention": f"{attention} with {other}",
            "norm": norm,
            "found": "measured" if enough else "rising" if is_rising(steps, means[-2], means[-1]) else "none",
            "measure": "margin ratio",
            "first": [means[begin], float(min(one.ratios[begin].min() for one in each))],
            "last": [means[-1], float(min(one.ratios[-1].min() for one in each))],
            "num_steps": [COUNTS[begin], COUNTS[-1]],
            "logit_change": [
                float(min(one.changes[begin:].min() for one in each)),
                float(max(one.changes[begin:].max() for one in each)),
            ],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="names of kinds; all by default")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.write and arguments.kinds:
        parser.error("--write needs all kinds: the rows are over them")
    found, table = dict[tuple[Kind, str], list[Measured]](), list[list[str]]()
    for kind in KINDS:
        if arguments.kinds and kind.name not in arguments.kinds:
            continue
        for name, make in kind.optimizers:
            begin, sizes = time.perf_counter(), OF_EACH_QUERY if kind.name in ("relative", "offsets") else SIZES
            own = found[kind, name] = [measured(kind, size, make) for size in sizes]
            errors, ratios = (
                np.concatenate(x) for x in zip(*((one.errors, one.ratios[-1]) for one in own), strict=True)
            )
            trained = f"{'W' if kind.attention == 'combined' else 'K, Q'}, {kind.name}"
            biases = max(one.biases for one in own)
            table.append(
                [
                    trained,
                    name,
                    kind.norm,
                    str(errors.size),
                    f"{np.median(errors):.1e}",
                    f"{errors.max():.1e}",
                    f"{ratios.mean():.4f}",
                    f"{ratios.min():.4f}",
                    f"{biases:.0e}" if kind.attention == "factored" and kind.name != "sink" else "",
                ]
            )
            print(f"{' | '.join(table[-1])} | {time.perf_counter() - begin:.0f} s", flush=True)
    columns = "trained", "optimizer", "norm", "problems", "median error", "largest", "mean ratio", "least", "b over KQ'"
    print("\n" + markdown(list(columns), table))
    if arguments.write:
        write_rows(list(rows(found)), COMMAND)


if __name__ == "__main__":
    main()
