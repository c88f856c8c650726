"""The predictions of a regressor by ``attsvm predict``: on the terminal, as JSON, and as tables of bags and tokens."""

from collections.abc import Iterable
from typing import Any

from attsvm.estimator import RegressionPredictions
from attsvm.pages.page import Page, Table
from attsvm.pages.predictions import SHARE, bags_table, csv_saver
from attsvm.pages.schemas.predictions import PredictNumbersResult
from attsvm.pages.words import number, percent


def numbers_page(
    predictions: RegressionPredictions, *, model: dict[str, str], source: str, bag: str = "bag", **about: Any
) -> Page:
    """Make the page of predictions of numbers; it has no HTML.

    The arguments are those of :func:`attsvm.pages.predictions.predictions_page`.
    """
    numbers = PredictNumbersResult.fill(
        predictions, **about, model=model, source=source, predictions=[*_bags(predictions)]
    )
    quantity = predictions.named_quantity
    return Page(
        numbers,
        terminal=[*_terminal(numbers, bag, quantity)],
        notes=[_note(numbers, quantity)],
        others={
            "predictions.csv": csv_saver(
                [
                    (bag, predictions.names),
                    (f"predicted {quantity}", predictions.values),
                    ("selected", predictions.selected),
                    ("contribution", predictions.contribution),
                    (SHARE, predictions.share),
                    ("target", predictions.targets),
                ]
            ),
            "instances.csv": csv_saver(
                [
                    (bag, predictions.names[predictions.owners]),
                    ("token", predictions.tokens),
                    ("contribution", predictions.contributions),
                    (f"{quantity} of the token alone", predictions.instance_scores),
                    (SHARE, predictions.attention),
                ]
            ),
        },
    )


def _bags(predictions: RegressionPredictions) -> Iterable[dict[str, Any]]:
    contribution, share, selected = predictions.contribution, predictions.share, predictions.selected
    for i, name in enumerate(predictions.names.tolist()):
        yield {
            "bag": str(name),
            "value": predictions.values[i],
            "selected": selected[i],
            "contribution": contribution[i],
            "share": share[i],
            "target": None if predictions.targets is None else predictions.targets[i],
        }


def _terminal(numbers: dict[str, Any], bag: str, quantity: str) -> Iterable[Table]:
    values = [[number(one["value"])] for one in numbers["predictions"]]
    yield bags_table(numbers["predictions"], bag, [quantity], values, "target", words=1)
    report = numbers["report"]
    if report is not None:
        rows = [
            ("mean absolute error", number(report["mae"])),
            (f"… of always predicting {number(numbers['constant'])}", number(report["constant_mae"])),
            ("root mean squared error", number(report["rmse"])),
            (f"… of always predicting {number(numbers['constant'])}", number(report["constant_rmse"])),
            ("R²", number(report["r2"])),
            ("targets of at most the prediction", percent(report["below"])),
        ]
        yield Table(rows, title="Prediction")


def _note(numbers: dict[str, Any], quantity: str) -> str:
    """What is predicted, what contributions add up to, and what is selected."""
    selected = "The selected token has the largest contribution by absolute value."
    if numbers["quantity"] == "log hazard ratio":
        return (
            "Values are logarithms of hazard ratios, relative to a bag in which every token is the mean training "
            "token. Of two bags, the one with the larger value is expected to have its event first. The contributions "
            f"of the tokens of a bag add up to its value. {selected}"
        )
    return (
        f"Values are the {quantity} of the target, in the unit of the training targets. The contributions of the "
        f"tokens of a bag add up to its value minus {number(numbers['constant'])}, the {quantity} of the training "
        f"targets. {selected}"
    )
