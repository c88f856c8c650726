"""The page of ``attsvm fit-text``."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from attsvm._fit.texts.result import Part, TextFit
from attsvm.estimator.prompt import forward
from attsvm.pages.drawn import Shown
from attsvm.pages.over_steps import slider
from attsvm.pages.render import render
from attsvm.pages.spans import Span, above_average, over_steps, shaded
from attsvm.pages.texts.figures import draw_text_figures
from attsvm.pages.texts.words import accuracy_of, notes, number_of_words, tables, verdict
from attsvm.pages.words import number, short
from attsvm.pages.write import write_page

SHORT, LONG = 30, 120
"""Fewest and most words of an example, if there are enough such texts."""

LONGEST_REST = 200
"""Characters after the last word that was read, beyond which an example is cut."""

_TAG = re.compile(r"\s*</?[a-z][^<>]*>\s*", re.IGNORECASE)


def text_page(fit: TextFit, result: dict[str, Any], drawn: list[Shown], command: str) -> str:
    """The whole page as HTML.

    ``result``: of :func:`attsvm.pages.texts.numbers.text_numbers`. ``drawn``: the figures, in their order.
    ``command``: the command that was run.
    """
    data, training = result["data"], result["training"]
    title = f"{data['source'].rstrip('/').rsplit('/', 1)[-1]}: attention over {data['tokens']}"
    kicker = (
        f"{data['train']:,} training and {data['test']:,} test texts · {data['vocabulary']:,} words, "
        f"d = {data['dim']} · {training['optimizer']} · {training['steps_done']:,} steps in "
        f"{result['seconds']['training']:.0f} s"
    )
    cards = [
        _accuracy_card(result, "Test accuracy", None, f"attention over {data['tokens']}"),
        _accuracy_card(result, "Mean token", "mean_token", "logistic regression on the mean of the same vectors"),
        _accuracy_card(result, "TF-IDF", "tf_idf", "logistic regression on the words of whole texts"),
        (
            "Effective words",
            number_of_words(result["effective_words"]["median"]),
            f"of {result['effective_words']['median_length']:.0f} in the median text; the exponential of the "
            "attention's entropy",
        ),
    ]
    words = result["words"]
    lists = [("Most attended", words["most"]), ("Least attended", words["least"])]
    lists += [(f"Most in “{name}”", rows) for name, rows in words["by_class"].items()]
    shown = examples(fit, result["seed"])
    steps, attention = recorded_attention(fit, shown)
    return render(
        "texts.html.j2",
        title=title,
        kicker=kicker,
        verdict=verdict(result),
        notes=list(notes(result)),
        cards=cards,
        about_words=_about_words(result),
        word_lists=[(name, [_word(row) for row in rows]) for name, rows in lists],
        examples=[_example(fit, row, at_steps) for row, at_steps in zip(shown, attention, strict=True)],
        slider=slider(steps) if len(steps) > 1 else "",
        drawn=drawn,
        made_by=f"Seed {result['seed']}",
        tables=list(tables(result)),
        command=command,
        result=result,
    )


def _accuracy_card(result: dict[str, Any], name: str, baseline: str | None, what: str) -> tuple[str, str, str]:
    value, _, interval = accuracy_of(result, baseline).partition(" (")
    return name, value, f"95% interval {interval.rstrip(')')}; {what}" if interval else what


def examples(fit: TextFit, seed: int) -> list[int]:
    """Rows of the test texts to show: for each of up to four classes two correct ones and a wrong one."""
    generator = np.random.default_rng(seed)
    lengths, right = fit.test.sequences.lengths, fit.test.predicted == fit.test.texts.labels
    readable = (lengths >= SHORT) & (lengths <= LONG)
    chosen: list[int] = []
    for label in fit.classes[:4]:
        for wanted, how_many in ((right, 2), (~right, 1)):
            candidates = np.flatnonzero(wanted & (fit.test.texts.labels == label))
            short = candidates[readable[candidates]]
            drawn = generator.permutation(short if len(short) >= how_many else candidates)
            chosen += [int(row) for row in drawn[:how_many]]
    return chosen


def _about_words(result: dict[str, Any]) -> str:
    return (
        "Attention over frequency: the attention that a word receives in a test text divided by its share of the words "
        "of the text, both as means over the test texts. Equal attention to all words gives 1. Class share: how the "
        "attention of a word divides among the labels, with equal weight for each label. The lists are over the "
        f"{result['words']['listed']:,} words that occur in at least {result['words']['listed_from']} test texts. A "
        "word is among the most attended only if the whole 95% interval of its ratio is above 1, and among the least "
        "attended only if it is below 1. The interval is from the differences between the texts that it occurs in."
    )


def _word(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    # a word without any attention has no share
    share = "-" if row["class_share"] is None else f"{row['class_share']:.0%} in “{row['class']}”"
    interval = "–".join(short(end) for end in row["over_frequency_interval"])
    return row["word"], number(row["over_frequency"]), interval, f"{row['documents']:,}", share


def _example(fit: TextFit, row: int, at_steps: np.ndarray) -> dict[str, Any]:
    """A test text, whose words had this attention (R, T) at the recorded steps."""
    part: Part = fit.test
    label, predicted = part.texts.labels[row], part.predicted[row]
    text, attention = part.texts.texts[row], part.attention_of(row)
    places = [(begin, end) for _, begin, end in fit.encoder.known(text)]
    at_steps = at_steps[:, : len(places)]  # a text without known words has a token of its own
    spans = shaded(
        text,
        [(begin, end, float(share), False) for (begin, end), share in zip(places, attention, strict=False)],
        between=lambda between: _TAG.sub(" ", between),
        over=over_steps(above_average(at_steps), at_steps) if len(at_steps) > 1 else None,
    )
    rest = spans[-1].text
    if len(rest) >= LONGEST_REST:
        spans[-1] = Span(rest[:LONGEST_REST].rsplit(" ", 1)[0] + " … (cut here)")
    return {
        "heading": f"Label “{label}”, classified {'correctly' if label == predicted else f'wrongly as “{predicted}”'}",
        "small": (
            f"probability {part.probability[row]:.2f} · {number_of_words(part.effective[row])} of "
            f"{part.sequences.lengths[row]} words effective"
        ),
        "spans": spans,
    }


def recorded_attention(fit: TextFit, rows: Sequence[int]) -> tuple[list[int], list[Float[np.ndarray, "R T"]]]:
    """The attention that some test texts had at recorded steps, up to the step whose parameters are kept.

    ``rows``: numbers of test texts.

    Returns ``steps`` (R steps; the last one is the kept step) and ``attention`` (of each text, for its T words).
    """
    path, texts = fit.classifier.path_, fit.test.sequences[np.asarray(rows, dtype=int)]
    of_all = [forward(model, texts).attention for model in path.values()]
    return list(path), np.split(np.array(of_all), texts.offsets[1:-1], axis=1)


def write_text_folder(folder: Path, fit: TextFit, result: dict[str, Any], command: str) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.texts.numbers.text_numbers`. ``command``: the command that was run.
    """
    drawn = draw_text_figures(fit)
    write_page(folder, text_page(fit, result, drawn, command), drawn, result)
