"""``result.json`` of a fit on texts: everything that it measured, as documented in docs/guide/texts.md."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.estimator import LEARNING_RATES, SLACK, AttentionClassifier, MarginReport
from attsvm.pages.class_report import class_report
from attsvm.pages.schemas.texts import FitTextResult, MarginReportFields, TextsFields
from attsvm.pages.words import saturation_numbers, share_interval

if TYPE_CHECKING:
    from attsvm._fit import TextFit, TextPart

LISTED = 12
"""Words in a table."""


def text_numbers(fit: "TextFit", *, source: str, test: str | None, **about: Any) -> dict[str, Any]:
    """The result of a fit on texts as JSON-able numbers; NaN and infinity become None.

    ``source``, ``test``: the source of the texts; ``test`` is None if the test texts are a part of it. ``about``: the
    command, the seed, and the limit on threads.
    """
    effective = fit.test.effective
    low, median, high = np.quantile(effective, [0.1, 0.5, 0.9])
    return FitTextResult.fill(
        fit,
        **about,
        data=TextsFields.fill(
            fit,
            source=source,
            test_source=test,
            train=len(fit.train.texts),
            test=len(fit.test.texts),
            vocabulary=len(fit.encoder.vocabulary),
            **_odd("train", fit, fit.train),
            **_odd("test", fit, fit.test),
        ),
        training=_training(fit.classifier.attention_),
        accuracy=_accuracy(fit),
        report=class_report(fit.test.report.combined),
        effective_words={
            "measure": "exponential of the attention's entropy, test texts",
            "mean": effective.mean(),
            "low": low,
            "median": median,
            "high": high,
            "median_length": np.median(fit.test.sequences.lengths),
        },
        saturation=saturation_numbers(fit.test.largest),
        words=_words(fit),
        margin_report=_margins(fit.margins),
    )


def _accuracy(fit: "TextFit") -> dict[str, Any]:
    train, test = fit.train.report, fit.test.report

    def of(train: float, test: float) -> dict[str, Any]:
        return {"train": train, "test": test, "test_interval": share_interval(test, len(fit.test.texts))}

    return {
        **of(train.accuracy, test.accuracy),
        "attention": of(train.attention.accuracy, test.attention.accuracy),
        "ngrams": of(train.ngrams.accuracy, test.ngrams.accuracy) if train.ngrams and test.ngrams else None,
        "mean_token": of(**fit.mean_token),
    }


def word_row(fit: "TextFit", word: int) -> dict[str, Any]:
    favoured = int(fit.words.by_class[word].argmax())
    return {
        "word": fit.encoder.vocabulary[word],
        "documents": fit.words.documents[word],
        "frequency": fit.words.frequency[word],
        "attention": fit.words.attention[word],
        "over_frequency": fit.words.over_frequency[word],
        "over_frequency_interval": [end[word] for end in fit.over_frequency_interval],
        "class": fit.classes[favoured],
        "class_share": fit.words.by_class[word, favoured],
    }


def _words(fit: "TextFit") -> dict[str, Any]:
    listed = fit.listed
    ratio = fit.words.over_frequency[listed]
    order = np.argsort(-ratio, kind="stable")
    # a word whose interval contains 1 is neither
    low, high = (end[listed] for end in fit.over_frequency_interval)
    most, least = order[low[order] > 1], order[::-1][high[order[::-1]] < 1]
    attended = listed[low > 1]
    favoured = fit.words.by_class[attended].argmax(axis=1)
    by_class = {}
    for number, name in enumerate(fit.classes):
        own = attended[favoured == number]
        by_class[name] = own[np.argsort(-fit.words.by_class[own, number], kind="stable")[:LISTED]]
    return {
        "listed": len(listed),
        "listed_from": fit.listed_from,
        "most": [word_row(fit, word) for word in listed[most[:LISTED]]],
        "least": [word_row(fit, word) for word in listed[least[:LISTED]]],
        "by_class": {name: [word_row(fit, word) for word in found] for name, found in by_class.items()},
        "over_frequency": {fit.encoder.vocabulary[word]: fit.words.over_frequency[word] for word in listed[order]},
    }


def _odd(name: str, fit: "TextFit", part: "TextPart") -> dict[str, int]:
    """The numbers of texts that are cut, and of texts without a known word."""
    blank = len(fit.encoder.vocabulary)
    full = np.flatnonzero(part.sequences.lengths == fit.encoder.max_length)
    return {
        f"{name}_cut": fit.encoder.number_cut([part.texts.texts[row] for row in full]),
        f"{name}_without_words": int((part.encoded.words == blank).sum()),
    }


def _training(classifier: AttentionClassifier) -> dict[str, Any]:
    settings = classifier.get_params()
    if settings["optimizer"] != "mirror_descent":
        del settings["p"]
    if settings["learning_rate"] is None:
        settings["learning_rate"] = LEARNING_RATES.get(settings["optimizer"])
    return {
        **settings,
        "status": classifier.status_,
        "steps_done": classifier.history_["steps"][-1],
        "kept_step": classifier.kept_step_,
    }


def _margins(report: MarginReport) -> dict[str, Any]:
    """The margins of a sample of the training texts; None if they are not defined with slack."""
    return MarginReportFields.fill(
        report, slack=None if report.separable else SLACK, support_tokens=int(report.solution.support.sum())
    )
