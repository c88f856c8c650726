"""The page of ``attsvm fit-text``: which words attention reads, and how well it classifies."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm._utils.shapes import Float
from attsvm.estimator import forward
from attsvm.pages.attention import Span, above_average, over_steps, shaded
from attsvm.pages.class_report import class_table, majority, one_class, report_rows
from attsvm.pages.over_steps import slider, slider_words
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, SpecialPart, Table, Tables, Text
from attsvm.pages.text_numbers import text_numbers
from attsvm.pages.words import FEW_ROWS, Rows, listed, number, number_of_words, percent, rate, saturation_word, short

if TYPE_CHECKING:
    from attsvm._fit import TextFit

text_figures = lazy_loader.load("attsvm.pages.text_figures", suppress_warning=True)

SHORT, LONG = 30, 120
"""Fewest and most words of an example, if there are enough such texts."""

LONGEST_REST = 200
"""Characters after the last word that was read, beyond which an example is cut."""

PARTS = {"attention": "attention alone", "ngrams": "n-grams alone", "mean_token": "the mean token"}
"""What is compared with the classifier."""

_TAG = re.compile(r"\s*</?[a-z][^<>]*>\s*", re.IGNORECASE)


def text_page(fit: "TextFit", **about: Any) -> Page:
    """Make the page of a fit on texts, from the arguments of :func:`attsvm.pages.text_numbers.text_numbers`."""
    result = text_numbers(fit, **about)
    data, training = result["data"], result["training"]
    numbers = Table.named(tables(result))
    missing = fit.classifier.why_not_saved()
    return Page(
        result,
        title=f"{data['source'].rstrip('/').rsplit('/', 1)[-1]}: attention over {data['tokens']}",
        kicker=f"{data['train']:,} training and {data['test']:,} test texts · {data['vocabulary']:,} words, "
        f"d = {data['dim']} · {training['optimizer']} · {training['steps_done']:,} steps in "
        f"{result['seconds']['training']:.0f} s",
        verdict=verdict(result),
        body=partial(_body, fit, result, numbers),
        notes=[*notes(result), *([f"There is no model file: {missing}."] if missing else [])],
        terminal=[*numbers, class_table(result["report"], "test texts", "Classes")],
        made_by=f"Seed {result['seed']}",
        kept=None if missing else ("the fitted classifier", "model.npz"),
        others={} if missing else {"model.npz": fit.classifier.save},
    )


def _body(fit: "TextFit", result: dict[str, Any], numbers: list[Table]) -> Iterator[AnyPart]:
    effective, words = result["effective_words"], result["words"]
    baselines = f"mean token: {accuracy_of(result, 'mean_token')}; largest training class: {majority(result['report'])}"
    yield Cards(
        [
            Card.share("Test accuracy", accuracy_of(result), baselines),
            Card.share("Attention alone", accuracy_of(result, "attention"), f"over {result['data']['tokens']}"),
            Card.share("N-grams alone", accuracy_of(result, "ngrams"), "TF-IDF of words and word pairs of whole texts"),
            Card(
                "Effective words",
                number_of_words(effective["median"]),
                f"of {effective['median_length']:.0f} in the median text; the exponential of the attention's entropy",
            ),
        ]
    )
    yield Heading("Attention and n-grams")
    yield Text(_about_parts(result["choice"]))
    yield Heading("Classes")
    yield class_table(result["report"], "test texts")
    yield Heading("Words")
    yield Text(_about_words(result))
    columns = ["", "over frequency", "95% interval", "texts", "class share"]
    lists = [("Most attended", words["most"]), ("Least attended", words["least"])]
    lists += [(f"Most in “{name}”", rows) for name, rows in words["by_class"].items()]
    yield Tables([Table([_word(row) for row in rows], columns, name, "attended") for name, rows in lists])
    shown = examples(fit, result["seed"])
    steps, attention = recorded_attention(fit, shown)
    yield Heading("Examples")
    yield Text(
        "Random test texts: for each label, two that are classified correctly and one that is not. The stronger the "
        "shade of a word, the more attention it receives; grey words are not read. Point at a word to see its share."
        + slider_words(steps)
    )
    texts = [_example(fit, row, at_steps) for row, at_steps in zip(shown, attention, strict=True)]
    yield SpecialPart("examples", {"slider": slider(steps), "texts": texts, "beside": False})
    yield Heading("Figures")
    yield Figures(text_figures.draw_text(fit), wide=["words"], kind="dots")
    yield Heading("Numbers")
    yield Tables(numbers)


def examples(fit: "TextFit", seed: int) -> list[int]:
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


def _about_parts(choice: dict[str, Any]) -> str:
    chosen = {
        "attention": "Attention classifies alone",
        "ngrams": "N-grams classify alone",
        "both": "The output is {:.2f} times that of attention plus {:.2f} times that of n-grams".format(
            *choice["weights"]
        ),
    }
    return (
        f"{chosen[choice['parts']]}; {choice['reason']}. N-grams are words and pairs of neighbouring words of "
        "the whole text, with logistic regression on TF-IDF weights. The words and examples below show attention alone."
    )


def _about_words(result: dict[str, Any]) -> str:
    return (
        "Attention over frequency: the attention that a word receives in a test text, divided by its share of the "
        "words of the text, both as means over the test texts. Equal attention to all words gives 1. Class share: "
        "how the attention of a word is divided among the labels, with equal weight for each label. The lists "
        f"contain the {result['words']['listed']:,} words that occur in at least {result['words']['listed_from']} "
        "test texts. A "
        "word is among the most attended only if the whole 95% interval of its ratio is above 1, and among the least "
        "attended only if it is below 1. The interval is from the differences between the texts that it occurs in."
    )


def _word(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    # a word without any attention has no share
    share = "-" if row["class_share"] is None else f"{row['class_share']:.0%} in “{row['class']}”"
    interval = "–".join(short(end) for end in row["over_frequency_interval"])
    return row["word"], number(row["over_frequency"]), interval, f"{row['documents']:,}", share


def _example(fit: "TextFit", row: int, at_steps: np.ndarray) -> dict[str, Any]:
    """A test text, whose words had this attention (R, T) at the recorded steps."""
    part = fit.test
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
        "readings": [("", spans)],
    }


def recorded_attention(fit: "TextFit", rows: Sequence[int]) -> tuple[list[int], list[Float[np.ndarray, "R T"]]]:
    """The attention that some test texts had at recorded steps, up to the step whose parameters are kept.

    ``rows``: numbers of test texts.

    Returns ``steps`` (R steps; the last one is the kept step) and ``attention`` (of each text, for its T words).
    """
    path, texts = fit.classifier.attention_.path_, fit.test.sequences[np.asarray(rows, dtype=int)]
    of_all = [forward(model, texts).attention for model in path.values()]
    return list(path), np.split(np.array(of_all), texts.offsets[1:-1], axis=1)


SUBJECTS = {
    "attention": "Attention over {tokens} classifies",
    "ngrams": "Logistic regression on n-grams classifies",
    "both": "Attention over {tokens} and n-grams together classify",
}
"""What the verdict says of the parts that classify."""


def verdict(result: dict[str, Any]) -> str:
    """The result in a few sentences."""
    accuracy, words, parts = result["accuracy"], result["effective_words"], result["choice"]["parts"]
    few = result["data"]["test"] < FEW_ROWS
    subject = SUBJECTS[parts].format(tokens=result["data"]["tokens"])
    others = [
        f"{name} {accuracy_of(result, key)}"
        for key, name in PARTS.items()
        if key != parts and accuracy[key] is not None
    ]
    said = f"{subject} {accuracy_of(result)} {'' if few else 'of the '}test texts correctly; {listed(others)}. "
    if parts == "both" and not few:
        added = 100 * (accuracy["test"] - accuracy["ngrams"]["test"])
        said += f"Attention adds {added:.1f} points to n-grams. "
    said += f"Always predicting the largest training class classifies {majority(result['report'])} correctly. "
    if not result["saturation"]["soft"]:
        return said + (
            "The attention is saturated: in the median text the largest probability of a word is "
            f"{number(result['saturation']['median_largest_probability'])}."
        )
    return said + (
        f"The attention is not saturated: its effective number of words is {number_of_words(words['median'])} in the "
        f"median text, which has {words['median_length']:.0f} words."
    )


def accuracy_of(result: dict[str, Any], part: str | None = None) -> str:
    """The test accuracy of the classifier or of a part with its interval; the counts if there are few test texts."""
    found = result["accuracy"] if part is None else result["accuracy"][part]
    return "-" if found is None else rate(found["test"], result["data"]["test"], found["test_interval"])


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Return the warnings shown above the results."""
    data = result["data"]
    alone = one_class(result["report"])
    if alone:
        yield f"The classifier predicts “{alone}” for all test texts, so its accuracy is the share of that label."
    for part in ("train", "test"):
        name = "training" if part == "train" else "test"
        cut, blank = data[f"{part}_cut"], data[f"{part}_without_words"]
        if cut:
            yield (
                f"{cut:,} of the {data[part]:,} {name} texts are cut after {data['max_length']} known words"
                f"{'' if result['accuracy']['ngrams'] is None else '; n-grams read them completely'}."
            )
        if blank:
            yield f"{blank:,} of the {data[part]:,} {name} texts contain no known word, so their words are not used."


def tables(result: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Tables of names and values: prediction, attention, training, margins."""
    accuracy, words, data = result["accuracy"], result["effective_words"], result["data"]
    yield (
        "Prediction",
        [
            ("test accuracy", accuracy_of(result)),
            *((f"… of {name}", accuracy_of(result, key)) for key, name in PARTS.items()),
            *report_rows(result["report"]),
            ("training accuracy", percent(accuracy["train"])),
            *(
                (f"… of {name}", "-" if accuracy[key] is None else percent(accuracy[key]["train"]))
                for key, name in PARTS.items()
            ),
        ],
    )
    yield "Attention and n-grams", _choice(result["choice"])
    yield (
        "Attention on the test texts",
        [
            ("effective words, median", number_of_words(words["median"])),
            ("… 10 and 90% of the texts", f"{number_of_words(words['low'])} and {number_of_words(words['high'])}"),
            ("number of words in the median text", number(words["median_length"])),
            ("median largest probability", number(result["saturation"]["median_largest_probability"])),
            ("attention", saturation_word(result["saturation"]["soft"])),
        ],
    )
    yield (
        "Words",
        [
            ("vocabulary", f"{data['vocabulary']:,}"),
            ("tokens", data["tokens"]),
            ("tokenizer", data["tokenizer"] or "that of the transformer"),
            ("words occur in", f"at least {data['min_documents']} training texts" if data["min_documents"] else "-"),
            ("length of a vector", f"{data['dim']}"),
            ("longest text read", f"{data['max_length']} words"),
        ],
    )
    yield "Training", _training(result)
    margins = result["margin_report"]
    yield f"Margins of {margins['texts']} training texts", _margins(margins)


def _choice(choice: dict[str, Any]) -> Rows:
    chosen = {"attention": "attention", "ngrams": "n-grams", "both": "both together"}
    rows = [("classifier", chosen[choice["parts"]])]
    rows += [
        (f"weight of {name}", number(weight))
        for name, weight in zip(("attention", "n-grams"), choice["weights"], strict=True)
    ]
    if choice["losses"] is None:
        return rows
    rows += [(f"held-out log-loss of {name}", number(choice["losses"][key])) for key, name in chosen.items()]
    return [*rows, ("held-out training texts", f"{choice['num_texts']:,}")]


def _training(result: dict[str, Any]) -> Rows:
    training, seconds = result["training"], result["seconds"]
    converged = training["status"] == "converged"
    return [
        ("optimiser", training["optimizer"] + (f", p = {training['p']:g}" if "p" in training else "")),
        ("steps done, and kept", f"{training['steps_done']:,} and {training['kept_step']:,}"),
        ("texts per step", f"{training['batch_size']}"),
        ("ended", "the validation loss stopped falling" if converged else "at the last step"),
        ("seconds: word vectors, training", f"{seconds['words']:.0f}, {seconds['training']:.0f}"),
    ]


def _margins(margins: dict[str, Any]) -> Rows:
    slack = "" if margins["slack"] is None else f" with slack, C = {margins['slack']:g}"
    return [
        ("most attended words separable", "yes" if margins["separable"] else "no"),
        ("constraints", f"{margins['constraints']:,}"),
        ("Att-SVM", f"{margins['status']}{slack}"),
        ("relative duality gap", number(margins["gap"])),
        ("correlation of its direction and the prompt", number(margins["correlation"])),
        ("margin of the prompt over its norm", number(margins["margin"])),
        ("margin ratio (margin over the best of its norm)", number(margins["margin_ratio"])),
    ]
