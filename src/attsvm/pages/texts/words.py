"""The sentences and tables of a fit on texts, for the terminal and the page."""

from collections.abc import Iterator
from typing import Any

from attsvm.pages.saturation import saturation_word
from attsvm.pages.words import FEW_ROWS, Rows, number, percent, rate

LISTED = 12
"""Words in a table."""


def verdict(result: dict[str, Any]) -> str:
    """The result in two sentences."""
    accuracy, words = result["accuracy"], result["effective_words"]
    shares = [accuracy_of(result, name) for name in (None, "mean_token", "tf_idf")]
    if result["data"]["test"] < FEW_ROWS:
        first = (
            f"Attention over {result['data']['tokens']} classifies {shares[0]} test texts correctly, the mean of the "
            f"same vectors {shares[1]}, and TF-IDF with logistic regression {shares[2]}. "
        )
    else:
        mean, tf_idf = (_points(accuracy["test"] - accuracy[name]["test"]) for name in ("mean_token", "tf_idf"))
        first = (
            f"Attention over {result['data']['tokens']} classifies {shares[0]} of the test texts correctly: {mean} the "
            f"mean of the same vectors, {shares[1]}, and {tf_idf} TF-IDF with logistic regression, {shares[2]}. "
        )
    if not result["saturation"]["soft"]:
        return first + (
            "The attention is saturated: in the median text the largest probability of a word is "
            f"{number(result['saturation']['median_largest_probability'])}."
        )
    return first + (
        f"The attention is not saturated: its effective number of words is {number_of_words(words['median'])} in the "
        f"median text, which has {words['median_length']:.0f} words."
    )


def accuracy_of(result: dict[str, Any], baseline: str | None = None) -> str:
    """The test accuracy of attention or of a baseline with its interval; the counts if there are few test texts."""
    found = result["accuracy"] if baseline is None else result["accuracy"][baseline]
    return rate(found["test"], result["data"]["test"], found["test_interval"])


def notes(result: dict[str, Any]) -> Iterator[str]:
    """Return the warnings shown above the results."""
    data = result["data"]
    for part in ("train", "test"):
        name = "training" if part == "train" else "test"
        cut, blank = data[f"{part}_cut"], data[f"{part}_without_words"]
        if cut:
            yield (
                f"{cut:,} of the {data[part]:,} {name} texts are cut after {data['max_length']} known words; TF-IDF "
                "reads them completely."
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
            ("… of the mean token", accuracy_of(result, "mean_token")),
            ("… of TF-IDF", accuracy_of(result, "tf_idf")),
            ("training accuracy", percent(accuracy["train"])),
            ("… of the mean token", percent(accuracy["mean_token"]["train"])),
            ("… of TF-IDF", percent(accuracy["tf_idf"]["train"])),
        ],
    )
    yield (
        "Attention on the test texts",
        [
            ("effective words, median", number_of_words(words["median"])),
            ("… 10 and 90% of the texts", f"{number_of_words(words['low'])} and {number_of_words(words['high'])}"),
            ("words of the median text", number(words["median_length"])),
            ("median largest probability", number(result["saturation"]["median_largest_probability"])),
            ("attention", saturation_word(result["saturation"]["soft"])),
        ],
    )
    yield (
        "Words",
        [
            ("vocabulary", f"{data['vocabulary']:,}"),
            ("tokens", data["tokens"]),
            ("words occur in", f"at least {data['min_documents']} training texts" if data["min_documents"] else "-"),
            ("length of a vector", f"{data['dim']}"),
            ("longest text read", f"{data['max_length']} words"),
        ],
    )
    yield "Training", _training(result)
    margins = result["margin_report"]
    yield f"Margins of {margins['texts']} training texts", _margins(margins)


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


def number_of_words(count: float) -> str:
    """An effective number of words, with a decimal where it is small."""
    return f"{count:.1f}" if count < 10 else f"{count:.0f}"


def _points(difference: float) -> str:
    """Percentage points above or below."""
    points = round(100 * difference, 1)
    if points == 0:
        return "equal to"
    return f"{abs(points):.1f} points {'above' if points > 0 else 'below'}"
