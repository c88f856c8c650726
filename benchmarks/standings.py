"""Which Att-SVM steps of each kind converge to: the measured rows of the table of standings.

    python benchmarks/standings.py [KIND ...] [--write]

Trains 16 random problems with each configuration below (n = 6, T = 8, d = 10, 2 heads where several; with shared keys n
= 3, T = 4, d = 5, 4 heads), and with combined attention 24 for each number of heads. The number of a row is the margin
ratio of the weights for the tokens that they select, in the norm of the row; where a head is trained, is nonlinear or
the rank is bounded, and for the token loss, it is the correlation with the predicted direction. A row begins at the
first number of steps from which the mean is at least 0.95 in every configuration of its kind, and ends at the largest
number that all of them made. Its ratios are the smallest at the beginning and at the end. Where the mean is below 0.95
the row says "rising" if the last doubling of the steps removed a tenth of its distance to 1, or, without normalization,
if it grew; else "none".
``--write`` replaces the rows of src/attsvm/theory/standings.toml that this command measured, or of the given kinds.
"""

import argparse
import json
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import attsvm
from attsvm import optimizers as o
from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, Steps, read_steps
from attsvm.optimizers.steps import written_steps
from attsvm.papers.token_instances import graph_instances
from attsvm.theory.measured import enough
from attsvm.theory.standing import limit_at
from attsvm.training import ATTENTIONS

COMMAND = "python benchmarks/standings.py"
KEY = "steps", "attention", "norm", "model", "heads", "columns", "decay", "momentum", "batch", "map"
TABLE = Path(__file__).parents[1] / "src/attsvm/theory/standings.toml"
NOTE = Path(__file__).parents[1] / "docs/notes/standings.md"
PROBLEMS, SEED, ENOUGH = 16, 11, enough()
PROBLEMS_OF_HEADS, SEED_OF_HEADS = 24, 12
"""Of several heads with combined attention."""
COUNTS = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)


def growing(step: Any) -> Any:
    return 0.1 * (1 + step / 100)


@dataclass(frozen=True)
class Kind:
    """Steps of one kind: the key of a row, and the optimisers that were run, each with its largest number of steps."""

    steps: str  # in words, for the names of what is stored; the row has the record of the steps
    norm: str
    runs: tuple[tuple[Callable[[], Any], int], ...]
    attention: str = "combined"
    model: str = "fixed head"
    heads: str = "one"
    columns: str = "all"
    decay: float = 0.0
    groups: int | None = None  # of four heads: those of a group share their keys
    num_heads: int = 2  # where several
    momentum: tuple[float, float] = (0.0, 0.0)
    options: dict[str, Any] = field(default_factory=dict)


GD = tuple((lambda rate=rate: o.gradient_descent(rate), 200_000) for rate in (0.1, 1.0, 10.0))
NGD = (
    *((lambda rate=rate: o.normalized_gradient_descent(rate), 200_000) for rate in (0.03, 0.1, 1.0)),
    (lambda: o.normalized_gradient_descent(growing), 200_000),
)
SHORT = Decaying(0.05, 100, 0.5)
BY_FACTORS = (
    (lambda: None, 100_000),
    (lambda: o.normalized_gradient_descent(Decaying(0.03, 1000), relative=True), 100_000),
)


def mirror(p: float, normalize: bool = True) -> tuple[tuple[Callable[[], Any], int], ...]:
    if not normalize:
        return ((lambda: o.mirror_descent(p=p, learning_rate=1.0, normalize=False), 200_000),)
    return (
        (lambda: o.mirror_descent(p=p, learning_rate=0.1), 200_000),
        (lambda: o.mirror_descent(p=p, learning_rate=growing), 200_000),
    )


def steepest(norm: str, most: int = 200_000) -> tuple[tuple[Callable[[], Any], int], ...]:
    return (
        (lambda: o.steepest_descent(norm=norm, learning_rate=Decaying(0.1, 1000, 0.5)), most),
        (lambda: o.steepest_descent(norm=norm, learning_rate=Decaying(0.3, 100, 0.5)), most),
    )


KINDS = (
    *(Kind("gradient descent", "frobenius", GD, attention) for attention in ("combined", "prompt")),
    *(Kind("normalized gradient descent", "frobenius", NGD, attention) for attention in ("combined", "prompt")),
    Kind("normalized gradient descent", "frobenius", NGD, "key_prompt"),
    *(
        Kind("normalized mirror descent", f"l{p:g}", mirror(p), a)
        for p in (1.25, 1.5, 1.75, 3.0)
        for a in ("combined", "prompt")
    ),
    *(Kind("mirror descent", f"l{p:g}", mirror(p, False)) for p in (1.5, 3.0)),
    *(Kind("steepest descent", norm, steepest(norm), "combined") for norm in ("l1", "linf", "spectral")),
    *(Kind("steepest descent", norm, steepest(norm), "combined") for norm in ("linf,2", "linf,2-columns")),
    Kind("steepest descent", "linf", steepest("linf"), "prompt"),
    Kind("adam", "linf", ((lambda: o.adam(Decaying(0.02, 100, 0.6)), 200_000), (lambda: o.adam(0.01), 200_000))),
    Kind("muon as shipped", "spectral", ((lambda: o.muon(Decaying(0.1, 100, 0.5)), 200_000),)),
    Kind("gradient descent", "nuclear", ((lambda: o.gradient_descent(1.0), 200_000),), "factored"),
    Kind("normalized gradient descent", "nuclear", BY_FACTORS, "factored"),
    Kind("normalized gradient descent", "nuclear", BY_FACTORS, "factored", columns="few", options={"rank": 2}),
    Kind(
        "normalized gradient descent, each factor",
        "nuclear",
        ((lambda: o.normalized_gradient_descent(0.03, scope="each"), 100_000),),
        "factored",
    ),
    Kind(
        "spectral, short",
        "spectral",
        (
            (lambda: o.spectral_descent(SHORT), 100_000),
            (lambda: o.spectral_descent(SHORT, momentum=0.95, polar="newton_schulz"), 100_000),
            (lambda: o.spectral_descent(Decaying(0.01, 100, 0.5)), 100_000),
        ),
        "factored",
        momentum=(0.0, 0.95),
    ),
    Kind(
        "spectral, short",
        "spectral",
        ((lambda: o.spectral_descent(SHORT, weight_decay=0.02), 100_000),),
        "factored",
        decay=0.02,
    ),
    Kind("gamma2, short", "gamma2", ((lambda: o.row_descent(Decaying(0.02, 100, 0.5)), 200_000),), "factored"),
    Kind(
        "nuclear, short",
        "nuclear",
        ((lambda: o.column_descent(Decaying(0.3, 1000, 1 / 3), by_logit=True), 200_000),),
        "factored",
    ),
    Kind(
        "nu, short",
        "nu",
        ((lambda: o.steepest_descent(norm="linf", learning_rate=Decaying(0.01, 100, 0.6)), 200_000),),
        "factored",
    ),
    Kind("bilinear descent", "spectral", ((lambda: o.bilinear_descent(Decaying(0.05, 100, 0.5)), 50_000),), "factored"),
    Kind("fused_kq, short", "fused_kq", ((lambda: o.spectral_descent(SHORT, scope="kq"), 100_000),), "factored"),
    *(
        Kind(
            f"{short}, long",
            "nuclear",
            ((lambda norm=norm: o.steepest_descent(norm=norm, learning_rate=long_steps, relative=True), 21_000),),
            "factored",
        )
        for short, norm in (
            ("spectral", "spectral"),
            ("gamma2", "linf,2"),
            ("nuclear", "linf,2-columns"),
            ("nu", "linf"),
        )
    ),
    *(
        Kind(steps, norm, runs, heads="several", num_heads=num_heads)
        for steps, norm, runs, counts in (
            ("normalized gradient descent", "frobenius", NGD[1:3], (2, 4, 8)),
            ("gradient descent", "frobenius", GD[1:], (2, 4)),
            ("steepest descent", "linf", steepest("linf", 100_000), (2, 4)),
            ("steepest descent", "spectral", steepest("spectral", 50_000), (2, 4)),
        )
        for num_heads in counts
    ),
    Kind(
        "normalized gradient descent",
        "sum over heads of nuclear",
        BY_FACTORS,
        "factored",
        heads="several",
    ),
    *(
        Kind(
            f"{norm}, short",
            norm,
            ((lambda scope=scope, decay=decay: o.spectral_descent(SHORT, scope=scope, weight_decay=decay), 100_000),),
            "factored",
            heads="several",
            decay=decay,
        )
        for norm, scope in (("max over heads of spectral", "heads"), ("fused_heads", "fused"))
        for decay in (0.0, 0.02)
    ),
    *(
        Kind(
            "normalized gradient descent, shared keys",
            f"sum over {groups} of nuclear",
            BY_FACTORS,
            "factored",
            heads="several",
            groups=int(groups[0]),
        )
        for groups in ("1 group", "2 groups")
    ),
    *(
        Kind(
            "max over heads of spectral, shared keys",
            "max over heads of spectral",
            ((lambda decay=decay: o.spectral_descent(SHORT, weight_decay=decay), 100_000),),
            "factored",
            heads="several",
            decay=decay,
            groups=groups,
        )
        for decay in (0.0, 0.02)
        for groups in (1, 2)
    ),
    *(
        Kind(
            f"max over heads of {norm}, shared keys",
            f"max over {groups} of {norm}",
            ((make, 100_000),),
            "factored",
            heads="several",
            groups=int(groups[0]),
        )
        for norm, make in (
            ("gamma2", lambda: o.row_descent(Decaying(0.02, 100, 0.5))),
            ("nu", lambda: o.steepest_descent(norm="linf", learning_rate=Decaying(0.01, 100, 0.6))),
        )
        for groups in ("1 group", "2 groups")
    ),
    *(
        Kind("normalized gradient descent", "frobenius", NGD[1:2], a, "trained head", options={"train_head": True})
        for a in ("combined", "prompt")
    ),
    *(
        Kind("gradient descent", "frobenius", GD[1:2], a, "trained head", options={"train_head": True})
        for a in ("combined", "prompt")
    ),
    *(
        Kind("normalized mirror descent", norm, mirror(p)[:1], a, "trained head", options={"train_head": True})
        for p, norm in ((1.75, "l1.75"), (3.0, "l3"))
        for a in ("combined", "prompt")
    ),
    Kind("normalized gradient descent", "frobenius", NGD[1:2], model="nonlinear head"),
    *(
        Kind("normalized gradient descent", "frobenius", NGD[1:2], model=f"tokens, {graphs}")
        for graphs in ("acyclic", "cyclic")
    ),
    *(Kind("gradient descent", "frobenius", GD[1:2], model=f"tokens, {graphs}") for graphs in ("acyclic", "cyclic")),
    *(
        Kind("normalized mirror descent", f"l{p:g}", mirror(p)[:1], model=f"tokens, {graphs}")
        for p in (1.75, 3.0)
        for graphs in ("acyclic", "cyclic")
    ),
    Kind("normalized gradient descent", "nuclear", BY_FACTORS[:1], "factored", "tokens, acyclic"),
    Kind(
        "normalized gradient descent",
        "nuclear",
        ((lambda: o.normalized_gradient_descent(0.01), 100_000),),
        "factored",
        "tokens, cyclic",
    ),
)


def long_steps(step: Any) -> Any:
    """Relative to the size of the factors: 1e-2, 1e-3 and 1e-4, for 7,000 steps each."""
    return 10.0 ** (-2 - jnp.minimum(step // 7_000, 2))


def token_problems(cyclic: bool) -> attsvm.Problem:
    instances = graph_instances("random", 6, 4, 6, 8, PROBLEMS, seed=[SEED, cyclic], cyclic=cyclic)
    contexts = np.stack([one.contexts for one in instances])
    keys = np.stack([one.vocabulary[one.contexts] for one in instances])
    labels = np.stack([one.labels for one in instances])
    return attsvm.Problem(np.eye(6)[contexts], labels=labels, queries=keys[:, :, -1], keys=keys, head=np.eye(6))


def problems_of(kind: Kind) -> attsvm.Problem:
    if kind.model.startswith("tokens"):
        return token_problems(kind.model == "tokens, cyclic")
    if kind.groups is not None:
        return random_problem(3, 4, 5, seed=SEED, batch=(PROBLEMS,), num_heads=4, key_groups=kind.groups)
    if kind.heads == "several" and kind.attention == "combined":
        return random_problem(6, 8, 10, seed=SEED_OF_HEADS, batch=(PROBLEMS_OF_HEADS,), num_heads=kind.num_heads)
    heads = 2 if kind.heads == "several" else None
    return random_problem(6, 8, 10, seed=SEED, batch=(PROBLEMS,), prompt="prompt" in kind.attention, num_heads=heads)


def measured(kind: Kind, make: Callable[[], Any], most: int) -> dict[str, Any]:
    """The ratios (counts, problems) of one configuration, and the changes of a logit in the later half."""
    problem, optimizer = problems_of(kind), make()
    counts = [count for count in COUNTS if count <= most] or [most]
    counts += [most] if counts[-1] != most else []
    options = dict(kind.options)
    if kind.model == "nonlinear head":
        generator = np.random.default_rng(SEED)
        options["head"] = attsvm.heads.MLP(generator.standard_normal((16, 10)), activation="relu")
    if kind.model.startswith("tokens"):
        options["loss"] = "token"
    records = sorted({*counts, *(count - 1 for count in counts)})
    run = attsvm.train(
        problem, attention=kind.attention, optimizer=optimizer, steps=most, record=records, seed=SEED, **options
    )
    at = np.searchsorted(run.history["steps"], counts)
    changes = run.history["logit_change"][at]
    ratios = np.array([[_ratio(problem, run, kind, r, i) for i in range(len(run))] for r in at])
    return {
        "counts": counts,
        "ratios": ratios.tolist(),
        "changes": changes.min(axis=1).tolist(),
        "largest_changes": changes.max(axis=1).tolist(),
    }


def _ratio(problem: attsvm.Problem, run: attsvm.Run, kind: Kind, record: int, i: int) -> float:
    weights, selected = run.history["weights"][record][i], run.history["selected"][record][i]
    one = problem[i]
    if kind.model == "fixed head" and kind.columns == "all":
        return float(np.min(attsvm.margin_ratio(one, weights, selected, kind.norm)))
    kept = {name: x[: record + 1, i] if name != "steps" else x[: record + 1] for name, x in run.history.items()}
    so_far = replace(run[i], weights=weights, selected=selected, history=kept, step=int(kept["steps"][-1]))
    found = attsvm.predict_direction(one, so_far, norm=kind.norm)
    moved = weights if found.finite is None else weights - found.finite
    return float(np.nan_to_num(attsvm.correlation(moved, found.direction), nan=-1.0))


def rows(stored: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of the table, one for each key."""

    def key(kind: Kind) -> tuple[Any, ...]:
        return kind.steps, kind.attention, kind.norm, kind.model, kind.heads, kind.columns, kind.decay

    for _, same in groupby(sorted(KINDS, key=key), key):
        kinds = list(same)
        found = [stored[name] for kind in kinds for name in _names(kind) if name in stored]
        if len(found) < sum(len(kind.runs) for kind in kinds):
            continue
        kind, steps, ends = (
            kinds[0],
            steps_of(kinds[0], max(one["largest_changes"][-1] for one in found)),
            min(one["counts"][-1] for one in found),
        )
        common = [count for count in found[0]["counts"] if all(count in one["counts"] for one in found)]
        means = [min(np.mean(one["ratios"][one["counts"].index(c)]) for one in found) for c in common]
        enough = [i for i in range(len(common)) if min(means[i:]) >= ENOUGH]
        begins = common[enough[0]] if enough else common[0]

        def at(count: int, reduce: Callable[[Any], Any]) -> float:
            return float(min(reduce(one["ratios"][one["counts"].index(count)]) for one in found))  # noqa: B023

        spans = [[i for i, c in enumerate(one["counts"]) if begins <= c <= ends] for one in found]
        yield {
            "command": COMMAND,
            "steps": columns_of(steps),
            "attention": kind.attention,
            "norm": kind.norm,
            "model": kind.model,
            "heads": kind.heads,
            "columns": kind.columns,
            "decay": kind.decay,
            "momentum": list(kind.momentum),
            "found": "measured" if enough else "rising" if is_rising(steps, means[-2], means[-1]) else "none",
            "measure": "margin ratio" if kind.model == "fixed head" and kind.columns == "all" else "correlation",
            "first": [at(begins, np.mean), at(begins, np.min)],
            "last": [at(ends, np.mean), at(ends, np.min)],
            "num_steps": [begins, ends],
            "logit_change": [
                min(min(one["changes"][i] for i in span) for one, span in zip(found, spans, strict=True)),
                max(max(one["largest_changes"][i] for i in span) for one, span in zip(found, spans, strict=True)),
            ],
        }


def steps_of(kind: Kind, change: float) -> Steps:
    """The steps of a kind that change a logit by this much."""
    problem, optimizer = problems_of(kind), kind.runs[0][0]()
    layer = ATTENTIONS.find(kind.attention).of(problem, kind.options.get("rank"))
    limit = layer.limit((optimizer or layer.default_optimizer()).steps, problem)
    return limit_at(limit, change).steps.family


def columns_of(steps: Steps) -> dict[str, Any]:
    """The columns of the table for steps, with the norm by its name."""
    named = {} if steps.norm is None else {"norm": steps.norm.name}
    return written_steps(steps.family) | named


def is_rising(steps: Steps, half: float, end: float) -> bool:
    """Whether the last doubling of the steps shows growth; without normalization weights grow like their logarithm."""
    slow = steps.kind in ("gradient", "mirror") and steps.normalised == "no"
    return end > half if slow else 1 - end < 0.9 * (1 - half)


def _names(kind: Kind) -> list[str]:
    of = f"{kind.steps}|{kind.attention}|{kind.norm}|{kind.model}|{kind.heads}|{kind.columns}|{kind.decay:g}"
    of += "" if kind.groups is None else f"|{kind.groups} groups"
    of += f"|{kind.num_heads} heads" if kind.num_heads > 2 else ""
    return [f"{of}|{i}" for i in range(len(kind.runs))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="parts of the names of rows; all by default")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("out/standings.json"))
    arguments = parser.parse_args()
    stored = json.loads(arguments.store.read_text()) if arguments.store.exists() else {}
    for kind in KINDS:
        for name, (make, most) in zip(_names(kind), kind.runs, strict=True):
            if name in stored or (arguments.kinds and not any(part in name for part in arguments.kinds)):
                continue
            begin = time.process_time()
            stored[name] = measured(kind, make, most)
            means = ", ".join(
                f"{c:,}: {np.mean(r):.4f}" for c, r in zip(stored[name]["counts"], stored[name]["ratios"], strict=True)
            )
            changes = stored[name]["largest_changes"][-1]
            print(f"{name}: {means}; change {changes:.2g}; {time.process_time() - begin:.0f} s", flush=True)
            arguments.store.parent.mkdir(parents=True, exist_ok=True)
            arguments.store.write_text(json.dumps(stored))
    if arguments.write:
        write_rows(list(rows(stored)), COMMAND, all_of_command=not arguments.kinds)


def write_rows(found: list[dict[str, Any]], command: str, *, all_of_command: bool = True) -> None:
    """Replace the rows of the table whose command begins like this, and the note that shows the table.

    ``all_of_command``: otherwise, its rows for other families than those that were found stay.
    """

    def key(row: dict[str, Any]) -> list[Any]:
        return [row[name] for name in KEY if name in row]

    def place(row: dict[str, Any]) -> list[str]:
        return [str(read_steps(row["steps"])), *(str(row.get(name, "")) for name in KEY[1:])]

    text, keys = TABLE.read_text(), [key(row) for row in found]
    table = tomllib.loads(text).get("row", [])
    replaced = [row["command"].startswith(command) and (all_of_command or key(row) in keys) for row in table]
    others = [row for row, is_replaced in zip(table, replaced, strict=True) if not is_replaced]
    all_rows = sorted([*found, *others], key=place)
    blocks = ["[[row]]\n" + "\n".join(f"{key} = {_toml(x)}" for key, x in row.items()) for row in all_rows]
    TABLE.write_text("\n\n".join([text.split("[[row]]")[0].rstrip(), *blocks]) + "\n")
    shown = tomllib.loads(TABLE.read_text())["row"]  # with the digits of the table
    NOTE.write_text(NOTE.read_text().split("| steps |")[0] + "\n".join(_lines(shown)) + "\n")


def _lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The two tables of the note; those of mini-batches are in the note on them."""
    shown = [row for row in found if not row.get("batch")]
    yield "| steps | trained | norm | result | mean / least | number of steps |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in shown:
        if not row["steps"]["kind"].startswith("optax."):
            yield f"| {' | '.join([str(read_steps(row['steps'])), _trained(row), *_result(row)])} |"
    yield from ("", "## Optimisers of optax", "")
    yield "| optimiser | trained | norm | gradient divided by its norm | raw gradient | number of steps |"
    yield "| --- | --- | --- | --- | --- | --- |"
    pairs: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in shown:
        kind = row["steps"]["kind"]
        if kind.startswith("optax."):
            pairs.setdefault((kind, row["attention"]), {})[row["steps"].get("normalised", "no")] = row
    for (kind, attention), each in sorted(pairs.items()):
        norm, *_, steps = _result(each["step"])
        cells = [" ".join(_result(each[normalised])[1:3]) for normalised in ("step", "no")]
        yield f"| {' | '.join([kind.removeprefix('optax.'), attention, norm, *cells, steps])} |"


def _result(row: dict[str, Any]) -> list[str]:
    """Norm, result, mean and least value, and the largest number of steps."""
    return [row["norm"], row["found"], "{:.3f} / {:.3f}".format(*row["last"]), f"{row['num_steps'][-1]:,}"]


def _trained(row: dict[str, Any]) -> str:
    words = [row["attention"], *(row[name] for name in ("model", "heads", "columns", "map") if name in row)]
    words = [word.replace(" head", " prediction head") for word in words if word not in ("fixed head", "one", "all")]
    words += [f"decay {row['decay']:g}"] if row.get("decay") else []
    words += [f"R from {row['radius'][0]:g} to {row['radius'][1]:g}"] if "radius" in row else []
    # where steps with momentum were measured alone
    words += [f"momentum {row['momentum'][0]:g}"] if row.get("momentum", [0])[0] else []
    return ", ".join(words).replace("several", _number_of_heads(row)).replace("few", "2 columns")


def _number_of_heads(row: dict[str, Any]) -> str:
    """How many attention heads the runs of a row on several of them had, such as "2, 4 attention heads"."""
    names = "attention", "norm", "model", "heads", "columns", "decay"
    same = [kind for kind in KINDS if all(row.get(name) == getattr(kind, name) for name in names)]
    own = read_steps(row["steps"])
    numbers = {
        4 if kind.groups else kind.num_heads
        for kind in same
        if row["command"] == COMMAND and replace(steps_of(kind, 0.0), factors=own.factors) == own
    }
    return f"{', '.join(map(str, sorted(numbers or {2})))} attention heads"


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return f"{value:.4g}" if any(c in f"{value:.4g}" for c in ".einf") else f"{value:.1f}"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(x)}' for key, x in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
