"""The page of ``attsvm fit`` on bags: how well classes are predicted, and which tokens decide."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from attsvm.datasets import BagFile
from attsvm.estimator import LEARNING_RATES, Ensemble, Predictions, effective_number
from attsvm.pages.class_report import class_report, class_table, majority, one_class, report_rows
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, Table, Tables, Text
from attsvm.pages.predictions import CONTRIBUTION, SHARE, ensemble_note
from attsvm.pages.schemas.bags import FitBagsResult
from attsvm.pages.words import FEW_ROWS, Rows, number, number_of_words, percent, rate, share_interval

if TYPE_CHECKING:
    from attsvm._fit import BagFit

bag_figures = lazy_loader.load("attsvm.pages.bag_figures", suppress_warning=True)

OF_EACH_CLASS, SHOWN_COLUMNS = 4, 20
"""Bags of each class whose deciding tokens are listed, and columns of these."""


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
        notes=[*_notes(report, part, training["members"], data["columns"], data.get("fill"))],
        terminal=[*tables, class_table(report, f"{part} bags", "Classes")],
        made_by=f"Seed {result['seed']}",
        kept=("the fitted classifier", "model.npz"),
        others={"model.npz": fit.classifier.save},
    )


def _numbers(fit: "BagFit", test: str | None, about: dict[str, Any]) -> dict[str, Any]:
    classifier, shown = fit.classifier, fit.train if fit.test is None else fit.test
    bags = fit.train_bags if fit.test_bags is None else fit.test_bags
    attention = shown.attention
    assert attention is not None
    low, median, high = np.quantile(effective_number(attention, bags.sequences), [0.1, 0.5, 0.9])
    test_report = None if fit.test is None else fit.test.report
    train_report = fit.train.report
    assert train_report is not None
    parameters, sequences, ensemble = classifier.get_params(), fit.train_bags.sequences, classifier.ensemble_
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
            "dim": classifier.prompt_.shape[-1],
            **fit.settings,
        },
        training={
            **parameters,
            "learning_rate": LEARNING_RATES.get(parameters["optimizer"]) if rate is None else rate,
            "scale": classifier.scale_,
            "ensemble": ensemble is not None,
            "members": [] if ensemble is None else _members(ensemble),
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
            "median_share": np.median(np.maximum.reduceat(attention, bags.sequences.offsets[:-1])),
        },
        history=classifier.history_,
    )


def _members(ensemble: Ensemble) -> list[dict[str, Any]]:
    pairs = zip(ensemble.members, ensemble.shares.tolist(), strict=True)
    return [{"name": member.name, "share": share} for member, share in pairs]


def _verdict(result: dict[str, Any], part: str, report: dict[str, Any]) -> str:
    bags = result["data"]["test" if part == "test" else "train"]
    share = result["accuracy"]["test" if part == "test" else "train"]
    said = rate(share, bags, share_interval(share, bags))
    some = f"{said} {part} bags" if bags < FEW_ROWS else f"{said} of the {part} bags"
    attention, members = result["attention"], result["training"]["members"]
    decided = (
        f"It is an ensemble of attention and {len(members)} ridge regressions."
        if members
        else f"In the median bag the attention is spread over {number_of_words(attention['effective_median'])} of "
        f"{attention['median_length']:.0f} tokens."
    )
    return (
        f"The classifier predicts {some} correctly. Always predicting the largest training class predicts "
        f"{majority(report)} correctly. {decided}"
    )


def _notes(
    report: dict[str, Any], part: str, members: list[dict[str, Any]], columns: list[str] | None, fill: str | None
) -> Iterator[str]:
    if members:
        said = ensemble_note("attention", [member["name"] for member in members])
        why = "An ensemble is used, because there are too few bags to hold out some for early stopping."
        yield f"{said} {why} The figures show attention alone."
    if alone := one_class(report):
        yield f"The classifier predicts “{alone}” for all {part} bags, so its accuracy is the share of that class."
    if part == "training":
        yield "No bags were set apart for testing, so the numbers are for the training bags."
    if fill is not None:
        yield f"Missing numbers are filled with the {fill} of their column in the training bags."
    if columns is not None:
        left = len(columns) - SHOWN_COLUMNS
        listed = ", ".join(columns[:SHOWN_COLUMNS]) + f" and {left:,} more" * (left > 0)
        yield f"The classifier uses the columns {listed}. Drop those that are not known at prediction, and identifiers."


def _body(
    fit: "BagFit", result: dict[str, Any], tables: list[Table], part: str, report: dict[str, Any]
) -> Iterator[AnyPart]:
    attention, bags = result["attention"], result["data"]["test" if part == "test" else "train"]
    share, members = result["accuracy"]["test" if part == "test" else "train"], result["training"]["members"]
    effective = f"of {attention['median_length']:.0f} in the median bag; the exponential of the attention's entropy"
    yield Cards(
        [
            Card.share(f"{part.capitalize()} accuracy", rate(share, bags, share_interval(share, bags))),
            Card("Largest training class", majority(report), "accuracy of always predicting it"),
            Card("Balanced accuracy", percent(report["balanced_accuracy"]), "mean recall of the classes"),
            Card("Ensemble", str(1 + len(members)), "parts that decide together: attention and ridge regressions")
            if members
            else Card("Effective tokens", number(attention["effective_median"]), effective),
        ]
    )
    yield Heading("Classes")
    yield class_table(report, f"{part} bags")
    yield Heading("Tokens that decide")
    shown, chosen = (fit.train, fit.train_bags) if fit.test is None else (fit.test, fit.test_bags)
    assert chosen is not None
    what = "its log odds" if len(shown.classes) == 2 else "the output for it"
    first = f"first {SHOWN_COLUMNS} " if chosen.sequences.dim > SHOWN_COLUMNS else ""
    yield Text(
        f"The {part} bags of each predicted class in which a token contributes most to the decision, and the {first}"
        f"entries of that token. The contributions of a bag to its predicted class add up to {what}."
        + (" Rows are counted below the header." if chosen.rows is not None else "")
    )
    yield _deciding(shown, chosen, fit.bag)
    yield Heading("Figures")
    yield Figures(bag_figures.draw_bags(fit), kind="dots")
    yield Heading("Numbers")
    yield Tables(tables)


def _deciding(shown: Predictions, bags: BagFile, bag: str) -> Table:
    """The tokens of the largest contributions to each predicted class."""
    sequences, predicted, contribution, share = bags.sequences, shown.predicted, shown.contribution, shown.share
    assert contribution is not None
    assert shown.labels is not None
    columns = [str(i) for i in range(sequences.dim)] if sequences.columns is None else list(sequences.columns)
    words = sequences.words or {}
    rows = []
    for name in shown.classes:
        own = np.flatnonzero(predicted == name)
        for i in own[np.argsort(-contribution[own], kind="stable")[:OF_EACH_CLASS]]:
            entries = sequences.table[sequences.ids[shown.first[i] : shown.first[i] + 1]][0][:SHOWN_COLUMNS]
            said = [
                (words[column][int(x)] if np.isfinite(x) else "-") if column in words else number(float(x))
                for column, x in zip(columns, entries, strict=False)
            ]
            known = [str(shown.names[i]), str(predicted[i]), str(shown.labels[i]), str(shown.selected[i])]
            rows.append([*known, number(contribution[i]), *([] if share is None else [percent(share[i])]), *said])
    titles = [bag, "predicted", "label", "token" if bags.rows is None else "row", CONTRIBUTION]
    return Table(rows, [*titles, *([] if share is None else [SHARE]), *columns[:SHOWN_COLUMNS]], kind="compared")


def _tables(result: dict[str, Any]) -> Iterator[tuple[str, Rows]]:
    data, accuracy, training, attention = (result[name] for name in ("data", "accuracy", "training", "attention"))
    report = result["report"]["test"] or result["report"]["train"]
    trained = ("training accuracy", percent(accuracy["train"]))
    if accuracy["test"] is None:
        yield "Prediction", [trained, *report_rows(report)]
    else:
        tested = ("test accuracy", rate(accuracy["test"], data["test"], accuracy["test_interval"]))
        yield "Prediction", [tested, *report_rows(report), trained]
    members = training["members"]
    if members:
        yield "Shares of the members of the ensemble", [(one["name"], percent(one["share"])) for one in members]
    yield (
        "Attention alone" if members else "Attention",
        [
            ("effective tokens, median", number(attention["effective_median"])),
            (
                "… 10 and 90% of the bags",
                f"{number_of_words(attention['effective_low'])} and {number_of_words(attention['effective_high'])}",
            ),
            ("number of tokens in the median bag", f"{attention['median_length']:.0f}"),
            ("largest attention on a token, median", percent(attention["median_share"])),
        ],
    )
    yield (
        "Training",
        [
            ("training, test bags", f"{data['train']:,}, {data['test']:,}"),
            ("groups kept together", "yes" if data["groups"] else "no"),
            ("optimiser, learning rate", f"{training['optimizer']}, {number(training['learning_rate'])}"),
            ("scale of the tokens", training["scale"]),
            ("ensemble", "yes" if members else "no"),
            ("steps done, and kept", f"{training['steps_done']:,} and {training['kept_step']:,}"),
            ("ended", str(training["status"])),
        ],
    )
