"""The page of ``attsvm experiment``, with its optimisers side by side."""

from typing import Any

import numpy as np

from attsvm.pages.drawn import Shown
from attsvm.pages.experiment.figures import draw_experiment
from attsvm.pages.experiment.history import at_common_steps, by_attention
from attsvm.pages.experiment.key_words import comparisons, sentences_of
from attsvm.pages.experiment.names import name_of
from attsvm.pages.experiment.published import COLUMNS, ORDER_COLUMNS, comparison
from attsvm.pages.over_steps import slider
from attsvm.pages.render import render
from attsvm.pages.words import listed, number, percent

WIDE = ("histograms", "pictures", "sparsity")
TITLES = {"imdb": "Movie reviews", "cifar10": "CIFAR-10"}


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
    return first + " One run per optimiser does not rank them; docs/notes/real_data.md has means over seeds."


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


def tables_of(result: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The numbers of every run, and the published accuracies, for the terminal."""
    tables = [(name_of(run["optimizer"]), rows_of(run)) for run in result["runs"]]
    compared = comparison(result)
    if compared is None:
        return tables
    accuracies = [
        (f"{preset}, {name}", f"{published} published; {measured}{' measured' * (seeds != '0')}")
        for preset, _, name, published, measured, _, seeds in compared.rows
    ]
    orders = [(f"{preset}, order {published}", verdict) for preset, _, published, _, verdict in compared.orders]
    return [*tables, ("test accuracy, best epoch (%)", accuracies + orders)]


def experiment_page(result: dict[str, Any], drawn: list[Shown]) -> str:
    """The whole page as HTML.

    ``result``: ``result.json``. ``drawn``: of :func:`attsvm.pages.experiment.figures.draw_experiment`.
    """
    data, runs, command = result["data"], result["runs"], result["command"]
    title = f"{TITLES[result['task']]}: {listed([name_of(run['optimizer']) for run in runs])}"
    model = result["model"]
    kicker = (
        f"preset {result['preset']} · {data['train']:,} training and {data['test']:,} test rows · {model['layers']} "
        f"layers of {model['heads']} heads, d = {model['width']}, {model['parameters']:,} weights · {result['device']}"
    )
    cards = [
        (
            name_of(run["optimizer"]),
            percent(run["best"]["test_accuracy"]) if run["best"] else "–",
            f"{'' if run['over_steps'] else 'diverged; '}test accuracy at the best epoch; {run['seconds']:.0f} s",
        )
        for run in runs
    ]
    _, shown = by_attention(runs)
    steps, _ = at_common_steps(shown)
    return render(
        "experiment.html.j2",
        title=title,
        kicker=kicker,
        verdict=verdict(result),
        notes=notes(result),
        cards=cards,
        drawn=drawn,
        made_by=f"Seed {result['seed']}",
        wide=WIDE,
        sentences=sentences_of(shown),
        slider=slider(steps) if len(steps) > 1 else "",
        compared_words=comparisons(shown) if shown and "key_words" in shown[0] else "",
        tables=[(name_of(run["optimizer"]), rows_of(run)) for run in runs],
        published=comparison(result),
        columns=COLUMNS,
        order_columns=ORDER_COLUMNS,
        command=command,
        result=result,
    )


def drawn_page(result: dict[str, Any], pictures: np.ndarray | None) -> tuple[str, list[Shown]]:
    """The page, and the figures that are in it."""
    drawn = draw_experiment(result, pictures)
    return experiment_page(result, drawn), drawn
