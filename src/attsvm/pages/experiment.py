"""The page of ``attsvm experiment``, with its optimisers side by side, and the published accuracies beside theirs."""

from collections.abc import Iterator
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np
import scipy
from markupsafe import Markup

from attsvm.pages.attention import over_steps, shaded
from attsvm.pages.over_steps import slider
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, SpecialPart, Table, Tables, Text
from attsvm.pages.words import listed, number, percent

if TYPE_CHECKING:
    from attsvm.papers import Experiment

experiment_figures = lazy_loader.load("attsvm.pages.experiment_figures", suppress_warning=True)

WIDE = ("histograms", "pictures", "sparsity")
TITLES = {"imdb": "Movie reviews", "cifar10": "CIFAR-10"}


COLUMNS = ["preset", "layers", "optimiser", "published (%)", "measured (%)", "best epoch", "seeds"]
ORDER_COLUMNS = ["preset", "layers", "published order", "measured order", "verdict"]


def experiment_page(experiment: "Experiment", *, runs: list[dict[str, Any]], **about: Any) -> Page:
    """Make the page of an experiment, from the arguments of :meth:`Experiment.result`."""
    result, pictures = experiment.result(runs, **about), experiment.task.pictures(experiment.data)
    data, model = result["data"], result["model"]
    numbers = [Table(rows_of(run), title=name_of(run["optimizer"])) for run in result["runs"]]
    published = published_tables(result)
    heading = ["Test accuracy at the best epoch:"] if published else []
    return Page(
        result,
        title=f"{TITLES[result['task']]}: {listed([name_of(run['optimizer']) for run in result['runs']])}",
        kicker=f"preset {result['preset']} · {data['train']:,} training and {data['test']:,} test rows · "
        f"{model['layers']} layers of {model['heads']} heads, d = {model['width']}, {model['parameters']:,} weights · "
        f"{result['device']}",
        verdict=verdict(result),
        body=partial(_body, result, numbers, published, pictures),
        notes=notes(result),
        terminal=[*numbers, *heading, *published],
        made_by=f"Seed {result['seed']}",
        kept=("the weights", "runs/"),
    )


def _body(
    result: dict[str, Any], numbers: list[Table], published: list[Table], pictures: np.ndarray | None
) -> Iterator[AnyPart]:
    yield Cards(
        [
            Card(
                name_of(run["optimizer"]),
                percent(run["best"]["test_accuracy"]) if run["best"] else "–",
                f"{'' if run['over_steps'] else 'diverged; '}test accuracy at the best epoch; {run['seconds']:.0f} s",
            )
            for run in result["runs"]
        ]
    )
    if published:
        smaller = [
            f" {order['preset']} has {order['scale']}; the published accuracies are for the full size."
            for order in result["published"]["orders"]
            if order["scale"]
        ]
        yield Heading("Published accuracy")
        yield Text(
            "Test accuracy at the best epoch, chosen on the test rows, as in the mirror-descent paper. ± is the "
            "standard error, over the test rows and, if there are several, over the seeds. An order holds if every "
            "pair "
            f"of optimisers differs by more than two standard errors.{''.join(smaller)}"
        )
        yield from published
    yield Heading("Figures")
    yield Figures(experiment_figures.draw_experiment(result, pictures), wide=WIDE)
    _, shown = by_attention(result["runs"])
    sentences = sentences_of(shown)
    if sentences:
        steps, _ = at_common_steps(shown)
        yield Heading("Sentences")
        with_slider = (
            " The slider shows the attention at earlier training steps; a run that ended before then keeps its last "
            "attention. The predicted probabilities are from the end of training."
        )
        yield Text(
            "The stronger the shade of a token, the more attention the last layer's [CLS] query pays to it (mean "
            "over heads). The scale of a sentence is from 0, its smallest entry, to 1, its largest; [CLS] and [SEP] "
            "are part of the scale, but not shown. Key words are underlined. Point at a token to see its share. "
            + comparisons(shown)
            + (with_slider if len(steps) > 1 else "")
        )
        yield SpecialPart("examples", {"slider": slider(steps), "texts": sentences, "beside": True})
    yield Heading("Numbers")
    yield Tables(numbers)


def verdict(result: dict[str, Any]) -> str:
    """The result in one or two sentences."""
    ranked = sorted(
        (run for run in result["runs"] if run["best"]), key=lambda run: run["best"]["test_accuracy"], reverse=True
    )
    if not ranked:
        return "No run finished its first epoch."
    parts = [f"{name_of(run['optimizer'])} {percent(run['best']['test_accuracy'])}" for run in ranked]
    first = f"Test accuracy at the best epoch, one run each: {', '.join(parts)}."
    if len(ranked) == 1:
        return first
    more = 'the documentation has means over seeds in its note "Experiments on real data".'
    return f"{first} One run per optimiser is not enough to rank them; {more}"


def notes(result: dict[str, Any]) -> list[str]:
    """Return the warnings shown above the results."""
    ends = {
        "interrupted": "was interrupted; continue it with --resume",
        "non_finite": "diverged: its loss or gradient was not finite. The numbers are from the last finite step",
    }
    return [f"{name_of(run['optimizer'])} {ends[run['status']]}." for run in result["runs"] if run["status"] in ends]


def rows_of(run: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers of a run, for page and terminal."""
    last = run["history"][-1]
    rows = [("learning rate", number(run["learning_rate"]))]
    if run["status"] == "non_finite":
        rows.append(("status", f"diverged after {run['steps']:,} steps"))
    if run["best"]:
        rows.append(("best test accuracy", f"{percent(run['best']['test_accuracy'])} (epoch {run['best']['epoch']})"))
        rows.append(("final training accuracy", percent(last["train_accuracy"])))
    rows.append(("final test accuracy", percent(last["test_accuracy"])))
    rows.append(("final test loss", number(last["test_loss"])))
    for kind, name in (("key", "keys"), ("query", "queries"), ("value", "values")):
        found = last["weights"][kind]
        rows.append((f"{name} below 1e-4", percent(found["negligible"])))
        rows.append((f"{name}, ‖w‖₁²/(n‖w‖₂²)", number(found["evenness"])))
    rows.append(("attention, ‖a‖₁²/(T‖a‖₂²)", number(float(np.mean(last["attention_evenness"]["all"])))))
    rows.append(("… of the class token", number(float(np.mean(last["attention_evenness"]["class"])))))
    rows.append(("‖W_K W_Q′‖", number(float(np.mean(last["key_query_norm"])))))
    if "key_words" in run:
        words = run["key_words"]
        rows.append(("key-word score", f"{percent(words['score'])}; equal attention: {percent(words['even'])}"))
        rows.append(("key words on the scale 0-1", f"{words['scaled']:.3f}; other words: {words['scaled_others']:.3f}"))
    rows.append(("steps", f"{run['steps']:,}"))
    rows.append(("seconds", f"{run['seconds']:.1f}"))
    return rows


def published_tables(result: dict[str, Any]) -> list[Table]:
    """Published and measured accuracies, and the orders of the optimisers; empty if nothing is published."""
    published = result.get("published")
    if published is None:
        return []
    rows, orders = [*map(_row, published["accuracies"])], [*map(_order, published["orders"])]
    return [
        Table(rows, COLUMNS, kind="published", words=3),
        Table(orders, ORDER_COLUMNS, kind="published", words=len(ORDER_COLUMNS)),
    ]


def _row(one: dict[str, Any]) -> list[str]:
    published = "-" if one["published"] is None else f"{100 * one['published']:.2f}"
    measured, best = "not run", "-"
    if one["measured"]:
        measured = f"{100 * fmean(one['measured']):.2f} ± {100 * one['error']:.2f}"
        best = ", ".join(f"{epoch} of {last}" for epoch, last in zip(one["best_epochs"], one["epochs"], strict=True))
    names = [one["preset"], str(one["layers"]), short_name_of(one["optimizer"])]
    return [*names, published, measured, best, str(len(one["measured"]))]


def _order(one: dict[str, Any]) -> list[str]:
    return [one["preset"], str(one["layers"]), _chain(one["published"]), _chain(one["measured"]), one["verdict"]]


def _chain(names: list[str]) -> str:
    return " > ".join(short_name_of(name) for name in names) if len(names) > 1 else "-"


def comparisons(runs: list[dict[str, Any]]) -> str:
    """In how many sentences the first run gives more attention to key words than each other one, on the scale 0-1."""
    first, name = key_attention(runs[0]), name_of(runs[0]["optimizer"])
    parts = []
    for run in runs[1:]:
        pairs = list(zip(first, key_attention(run), strict=True))
        more, fewer = sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)
        p = scipy.stats.binomtest(more, more + fewer).pvalue if more + fewer else 1.0
        other = name_of(run["optimizer"])
        parts.append(
            f"{name} gives more than {other} in {more} of {len(pairs)} sentences, and less in {fewer} "
            f"(sign test, p = {p:.2g})."
        )
    return " ".join(parts)


def sentences_of(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each sentence with its label as a heading, and a reading for each run: its name, and the shaded text."""
    if not runs or "key_words" not in runs[0]:
        return []
    read = [run["key_words"]["sentences"] for run in runs]
    steps, attention = at_common_steps(runs)
    return [
        {
            "heading": "positive" if readings[0]["label"] else "negative",
            "small": "",
            "readings": [
                (
                    f"{name_of(run['optimizer'])}: positive {reading['probability']:.0%}",
                    shaded(
                        reading["text"],
                        reading["pieces"],
                        opacities=reading["scaled"],
                        over=_of_slider([found[number] for found in at_steps]) if len(steps) > 1 else None,
                    ),
                )
                for run, reading, at_steps in zip(runs, readings, attention, strict=True)
            ],
        }
        for number, readings in enumerate(zip(*read, strict=True))
    ]


def _of_slider(records: list[dict[str, list[float]]]) -> list[Markup]:
    """For each word of a sentence what the slider needs, from the records of its attention."""
    scaled, shares = (np.array([record[name] for record in records]) for name in ("scaled", "shares"))
    return over_steps(scaled, shares)


def key_attention(run: dict[str, Any]) -> list[float]:
    return [sentence["key_scaled"] for sentence in run["key_words"]["sentences"]]


def by_attention(runs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All runs, those that diverged last, and the others alone, whose attention is shown."""
    shown = [run for run in runs if run["over_steps"]]
    return shown + [run for run in runs if not run["over_steps"]], shown


def at_common_steps(runs: list[dict[str, Any]]) -> tuple[list[int], list[list[list[Any]]]]:
    """The steps that some run has recorded, and for each run its attention at each of them.

    A run that ended before a step has the attention of its end there.

    ``runs``: of ``result.json``.

    Returns ``steps`` and ``attention`` (for each run and each step the attention to each sentence or picture).
    """
    steps = sorted({record["step"] for run in runs for record in run["over_steps"]})
    return steps, [[_latest(run["over_steps"], step) for step in steps] for run in runs]


def _latest(records: list[dict[str, Any]], step: int) -> list[Any]:
    """The attention of the last record up to a step; that of the first one if there is none."""
    before = [record for record in records if record["step"] <= step]
    attention: list[Any] = (before or records)[-1 if before else 0]["attention"]
    return attention


def name_of(optimizer: str) -> str:
    """The name of an optimiser on the page."""
    if optimizer.startswith("mirror-"):
        return f"{short_name_of(optimizer)} mirror descent"
    return {"sgd": "gradient descent"}.get(optimizer, short_name_of(optimizer))


def short_name_of(optimizer: str) -> str:
    """Its name in an order, such as ℓ1.1 > ℓ2.

    Examples
    --------
    >>> from attsvm.pages.experiment import name_of, short_name_of
    >>> name_of("mirror-1.1"), short_name_of("mirror-1.1"), name_of("sgd")
    ('ℓ1.1 mirror descent', 'ℓ1.1', 'gradient descent')
    """
    if optimizer.startswith("mirror-"):
        return f"ℓ{optimizer.removeprefix('mirror-')}"
    return {"sgd": "GD", "adam": "Adam"}.get(optimizer, optimizer)
