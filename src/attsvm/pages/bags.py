"""The page of ``attsvm fit`` on bags: how well classes are predicted, and which tokens are selected."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm.datasets import BagFile
from attsvm.estimator import LEARNING_RATES, Predictions, effective_number
from attsvm.pages.class_report import class_report, class_table, majority, one_class, report_rows
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, Table, Tables, Text
from attsvm.pages.schemas.bags import FitBagsResult
from attsvm.pages.words import FEW_ROWS, Rows, number, number_of_words, percent, rate, share_interval

if TYPE_CHECKING:
    from attsvm._fit import BagFit

bag_figures = lazy_loader.load("attsvm.pages.bag_figures", suppress_warning=True)

OF_EACH_CLASS, SHOWN_COLUMNS = 4, 8
"""Bags of each class and columns whose selected tokens are listed."""


def bags_page(fit: "BagFit", *, test: str | None = None, **about: Any) -> Page:
    """Make the page of a fit to bags.

    ``test``: the file of the test bags, if they have one. ``about``: the command, and the limit on threads.
    """
    result = _numbers(fit, test, about)
    data, training = result["data"], result["training"]
    tables = Table.named(_tables(result))
    part = "training" if fit.test is None else "test"
    report = result["report"]["train" if fit.test is None else "test"]
    return Page(
        result,
        title=f"{data['source'].rstrip('/').rsplit('/', 1)[-1]}: attention over bags",
        kicker=f"{data['train']:,} training and {data['test']:,} test bags · {data['tokens']:,} tokens, "
        f"d = {data['dim']} · {training['steps_done']:,} steps",
        verdict=_verdict(result, part, report),
        body=partial(_body, fit, result, tables, part, report),
        notes=[*_notes(report, part, training["ensemble"])],
        terminal=[*tables, class_table(report, f"{part} bags", "Classes")],
        made_by=f"Seed {result['seed']}",
        kept=("the fitted classifier", "model.npz"),
        others={"model.npz": fit.classifier.save},
    )


def _numbers(fit: "BagFit", test: str | None, about: dict[str, Any]) -> dict[str, Any]:
    classifier, shown = fit.classifier, fit.train if fit.test is None else fit.test
    bags = fit.train_bags if fit.test_bags is None else fit.test_bags
    effective = _effective(shown, bags)
    low, median, high = np.quantile(effective, [0.1, 0.5, 0.9])
    test_report = None if fit.test is None else fit.test.report
    train_report = fit.train.report
    assert train_report is not None
    parameters, sequences = classifier.get_params(), fit.train_bags.sequences
    rate = parameters["learning_rate"]
    tested = 0 if fit.test_bags is None else len(fit.test_bags.sequences)
    return FitBagsResult.fill(
        fit,
        **about,
        data={
            "source": fit.data,
            "test_source": test,
            "bag": fit.bag,
            "columns": None if sequences.columns is None else list(sequences.columns),
            "classes": [str(name) for name in classifier.classes_],
            "train": len(sequences),
            "test": tested,
            "tokens": len(sequences.ids) + (0 if fit.test_bags is None else len(fit.test_bags.sequences.ids)),
            "dim": sequences.dim,
            **fit.settings,
        },
        training={
            **parameters,
            "learning_rate": LEARNING_RATES.get(parameters["optimizer"]) if rate is None else rate,
            "scale": classifier.scale_,
            "ensemble": classifier.ensemble_ is not None,
            "status": classifier.status_,
            "steps_done": classifier.history_["steps"][-1],
            "kept_step": classifier.kept_step_,
        },
        accuracy={
            "train": train_report.accuracy,
            "test": None if test_report is None else test_report.accuracy,
            "test_interval": None if test_report is None else share_interval(test_report.accuracy, tested),
        },
        report={
            "train": class_report(train_report),
            "test": None if test_report is None else class_report(test_report),
        },
        attention={
            "effective_low": low,
            "effective_median": median,
            "effective_high": high,
            "median_length": np.median(bags.sequences.lengths),
            "median_share": np.median(shown.share),  # type: ignore[arg-type]
        },
        history=classifier.history_,
    )


def _effective(shown: Predictions, bags: BagFile) -> np.ndarray:
    assert shown.attention is not None
    return effective_number(shown.attention, bags.sequences)


def _verdict(result: dict[str, Any], part: str, report: dict[str, Any]) -> str:
    bags = result["data"]["test" if part == "test" else "train"]
    share = result["accuracy"]["test" if part == "test" else "train"]
    said = rate(share, bags, share_interval(share, bags))
    some = f"{said} {part} bags" if bags < FEW_ROWS else f"{said} of the {part} bags"
    attention = result["attention"]
    return (
        f"The classifier predicts {some} correctly. Always predicting the largest class predicts {majority(report)} "
        f"correctly. In the median bag the attention is spread over "
        f"{number_of_words(attention['effective_median'])} of {attention['median_length']:.0f} tokens."
    )


def _notes(report: dict[str, Any], part: str, ensemble: bool) -> Iterator[str]:
    if ensemble:
        yield (
            "Too few bags can be held out for early stopping, so the classifier is an ensemble of attention and ridge "
            "regressions on pooled features. Attention, selected tokens and figures are those of the attention alone, "
            "which does not explain every prediction; contributions(X) of the classifier divides the output."
        )
    if alone := one_class(report):
        yield f"The classifier predicts “{alone}” for all {part} bags, so its accuracy is the share of that class."
    if part == "training":
        yield "No bags were set apart for testing: the numbers are those of the training bags."


def _body(
    fit: "BagFit", result: dict[str, Any], tables: list[Table], part: str, report: dict[str, Any]
) -> Iterator[AnyPart]:
    attention, bags = result["attention"], result["data"]["test" if part == "test" else "train"]
    share = result["accuracy"]["test" if part == "test" else "train"]
    yield Cards(
        [
            Card.share(f"{part.capitalize()} accuracy", rate(share, bags, share_interval(share, bags))),
            Card("Largest class", majority(report), "accuracy of always predicting it"),
            Card("Balanced accuracy", percent(report["balanced_accuracy"]), "mean recall of the classes"),
            Card(
                "Effective tokens",
                number(attention["effective_median"]),
                f"of {attention['median_length']:.0f} in the median bag; the exponential of the attention's entropy",
            ),
        ]
    )
    yield Heading("Classes")
    yield class_table(report, f"{part} bags")
    yield Heading("Selected tokens")
    shown, chosen = (fit.train, fit.train_bags) if fit.test is None else (fit.test, fit.test_bags)
    assert chosen is not None
    yield Text(
        f"The {part} bags of each predicted class whose selected token has the largest share of the attention, and the "
        "entries of that token" + (". Rows are counted from 1 below the header." if chosen.rows is not None else ".")
    )
    yield _selected(shown, chosen, fit.bag)
    yield Heading("Figures")
    yield Figures(bag_figures.draw_bags(fit), kind="dots")
    yield Heading("Numbers")
    yield Tables(tables)


def _selected(shown: Predictions, bags: BagFile, bag: str) -> Table:
    sequences, predicted = bags.sequences, shown.predicted
    share = shown.share
    assert share is not None
    assert shown.labels is not None
    columns = [str(i) for i in range(sequences.dim)] if sequences.columns is None else list(sequences.columns)
    words = sequences.words or {}
    rows = []
    for name in shown.classes:
        own = np.flatnonzero(predicted == name)
        for i in own[np.argsort(-share[own], kind="stable")[:OF_EACH_CLASS]]:
            entries = sequences.table[sequences.ids[shown.first[i] : shown.first[i] + 1]][0][:SHOWN_COLUMNS]
            said = [
                (words[column][int(x)] if np.isfinite(x) else "-") if column in words else number(float(x))
                for column, x in zip(columns, entries, strict=False)
            ]
            known = [str(shown.names[i]), str(predicted[i]), str(shown.labels[i]), str(shown.selected[i])]
            rows.append([*known, percent(share[i]), *said])
    place = "token" if bags.rows is None else "row"
    return Table(rows, [bag, "predicted", "label", place, "share", *columns[:SHOWN_COLUMNS]], kind="compared")


def _tables(result: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    data, accuracy, training, attention = (result[name] for name in ("data", "accuracy", "training", "attention"))
    report = result["report"]["test"] or result["report"]["train"]
    trained = ("training accuracy", percent(accuracy["train"]))
    if accuracy["test"] is None:
        yield "Prediction", [trained, *report_rows(report)]
    else:
        tested = ("test accuracy", rate(accuracy["test"], data["test"], accuracy["test_interval"]))
        yield "Prediction", [tested, *report_rows(report), trained]
    yield (
        "Attention",
        [
            ("effective tokens, median", number(attention["effective_median"])),
            (
                "… 10 and 90% of the bags",
                f"{number_of_words(attention['effective_low'])} and {number_of_words(attention['effective_high'])}",
            ),
            ("tokens of the median bag", f"{attention['median_length']:.0f}"),
            ("share of the selected token, median", percent(attention["median_share"])),
        ],
    )
    yield (
        "Training",
        [
            ("training, test bags", f"{data['train']:,}, {data['test']:,}"),
            ("groups kept together", "yes" if data["groups"] else "no"),
            ("optimiser, learning rate", f"{training['optimizer']}, {number(training['learning_rate'])}"),
            ("scale of the tokens", training["scale"]),
            ("ensemble", "yes" if training["ensemble"] else "no"),
            ("steps done, and kept", f"{training['steps_done']:,} and {training['kept_step']:,}"),
            ("ended", str(training["status"])),
        ],
    )
