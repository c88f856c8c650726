"""The page of an experiment: one self-contained file, its optimisers side by side."""

from html import escape
from typing import Any

import numpy as np

from attsvm.report.document import cards_element, document, figures_element, table_element
from attsvm.report.experiment.figures import draw_experiment, name_of
from attsvm.report.fit.figures import Drawn
from attsvm.report.fit.words import number, percent

WIDE = ("histograms", "pictures")
TITLES = {"imdb": "Movie reviews", "cifar10": "CIFAR-10"}

RUN_STYLE = """
.runs th, .runs td { width: auto; padding-right: 1.1rem }
.runs { margin-bottom: 1.6rem; overflow-x: auto }
.examples mark.key { text-decoration: underline; text-underline-offset: .18em; text-decoration-thickness: .1em }
.examples p.reading { display: grid; grid-template-columns: 8.5rem 1fr; gap: 0 .8rem; margin-bottom: .25rem }
.examples p.reading small { line-height: 1.35; align-self: center }
"""


def verdict(result: dict[str, Any]) -> str:
    """What was found, in one or two sentences."""
    ranked = sorted(
        (run for run in result["runs"] if run["best"]), key=lambda run: run["best"]["test_accuracy"], reverse=True
    )
    if not ranked:
        return "No run got through its first epoch."
    parts = [f"{name_of(run['optimizer'])} {percent(run['best']['test_accuracy'])}" for run in ranked]
    first = f"Test accuracy at the best epoch, one run each: {', '.join(parts)}."
    if len(ranked) == 1:
        return first
    return first + " One run does not tell whose lead would last; docs/notes/real_data.md has means over seeds."


def notes(result: dict[str, Any]) -> list[str]:
    """What a reader must not overlook."""
    told = {
        "interrupted": "was interrupted; --resume goes on with it",
        "diverged": "diverged: its loss or gradient was not finite; what is shown is from before that",
    }
    return [f"{name_of(run['optimizer'])} {told[run['status']]}." for run in result["runs"] if run["status"] in told]


def rows_of(run: dict[str, Any]) -> list[tuple[str, str]]:
    """The numbers of a run, for page and terminal."""
    last = run["history"][-1]
    rows = [("learning rate", number(run["learning_rate"]))]
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
    rows.append(("the same of the class token", number(float(np.mean(last["attention_evenness"]["class"])))))
    rows.append(("‖W_K W_Q′‖", number(float(np.mean(last["key_query_norm"])))))
    if "key_words" in run:
        words = run["key_words"]
        rows.append(("key-word score", f"{percent(words['score'])}; equal attention: {percent(words['even'])}"))
    rows.append(("steps", f"{run['steps']:,}"))
    rows.append(("seconds", f"{run['seconds']:.1f}"))
    return rows


def experiment_page(result: dict[str, Any], drawn: list[Drawn]) -> str:
    """The whole page as HTML.

    Parameters
    ----------
    result : dict
        ``result.json``.
    drawn : list of Drawn
        Of :func:`attsvm.report.experiment.figures.draw_experiment`.
    """
    data, runs, command = result["data"], result["runs"], result["command"]
    *others, last = (name_of(run["optimizer"]) for run in runs)
    title = f"{TITLES[result['task']]}: {', '.join(others)}{' and ' * bool(others)}{last}"
    model = result["model"]
    kicker = (
        f"preset {result['preset']} · {data['train']:,} training and {data['test']:,} test rows · {model['layers']} "
        f"layers of {model['heads']} heads, d = {model['width']}, {model['parameters']:,} weights · {result['device']}"
    )
    cards = [
        (
            name_of(run["optimizer"]),
            percent(run["best"]["test_accuracy"]) if run["best"] else "–",
            f"test accuracy at the best epoch; {run['seconds']:.0f} s",
        )
        for run in runs
    ]
    tables = "".join(table_element(name_of(run["optimizer"]), rows_of(run)) for run in runs)
    body = f"""<dl class="cards">{cards_element(cards)}</dl>
<h2>Figures</h2>
<div class="figures">{figures_element(drawn, command, made_by=f"Seed {result['seed']}", wide=WIDE)}</div>
{_sentences(runs)}
<h2>Numbers</h2>
<div class="tables">{tables}</div>"""
    footer = f"""<p><code>{escape(command)}</code></p>
<p>attsvm {escape(result["version"])} · seed {result["seed"]} · data SHA-256 <code>{escape(data["sha256"])}</code> · all
numbers in <code>result.json</code>, the weights in <code>runs/</code>.</p>"""
    return document(
        title,
        kicker=kicker,
        verdict=verdict(result),
        notes=notes(result),
        body=body,
        footer=footer,
        style=RUN_STYLE,
    )


def _sentences(runs: list[dict[str, Any]]) -> str:
    if "key_words" not in runs[0]:
        return ""
    articles = "".join(_sentence(runs, row) for row in range(len(runs[0]["key_words"]["sentences"])))
    return f"""<h2>Sentences</h2>
<p class="lead">The darker a token, the more attention the last layer's [CLS] query pays to it (mean over heads; each
sentence on a scale of its own; [CLS] and [SEP] are not shown). Key words are underlined. Point at a token to see its
share.</p>
<div class="examples">{articles}</div>"""


def _sentence(runs: list[dict[str, Any]], row: int) -> str:
    label = "positive" if runs[0]["key_words"]["sentences"][row]["label"] else "negative"
    readings = "".join(
        f'<p class="reading"><small>{escape(name_of(run["optimizer"]))}: positive '
        f"{run['key_words']['sentences'][row]['probability']:.0%}</small>"
        f"<span>{_shaded(run['key_words']['sentences'][row])}</span></p>"
        for run in runs
    )
    return f"<article><h3>{label}</h3>{readings}</article>"


def _shaded(reading: dict[str, Any]) -> str:
    text, pieces, at = reading["text"], [], 0
    most = max((weight for _, _, weight, _ in reading["pieces"]), default=0.0) or 1.0
    for begin, end, weight, key in reading["pieces"]:
        of_class = ' class="key"' if key else ""
        pieces.append(escape(text[at:begin]))
        pieces.append(
            f'<mark{of_class} style="--a:{weight / most:.2f}" title="{weight:.1%}">{escape(text[begin:end])}</mark>'
        )
        at = end
    return "".join(pieces) + escape(text[at:])


def drawn_page(result: dict[str, Any], pictures: np.ndarray | None) -> tuple[str, list[Drawn]]:
    """The page, and the figures that are in it."""
    drawn = draw_experiment(result, pictures)
    return experiment_page(result, drawn), drawn
