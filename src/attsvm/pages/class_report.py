"""How well each class is predicted, as fields, rows and a table of a page."""

from typing import TYPE_CHECKING, Any

from attsvm.pages.page import Table
from attsvm.pages.schemas.model import Fields, Number
from attsvm.pages.words import FEW_ROWS, Rows, counts, percent

if TYPE_CHECKING:
    from attsvm.estimator import ClassificationReport

MOST_CLASSES = 6
"""Most classes whose confusion matrix has a place in a table."""


class ClassReportFields(Fields):
    classes: list[str]  # names of the C classes
    # shape (C, C): number of outputs of the class of the row that are predicted as that of the column
    confusion: list[list[int]]
    majority: Number  # accuracy of always predicting the largest class of the training part
    balanced_accuracy: Number  # mean recall of the classes that occur
    auroc: Number  # area under the ROC curve, of more than two classes the mean; null if a class does not occur
    precision: list[Number]  # share of the predictions of each class that are correct; null if there are none
    recall: list[Number]  # share of the outputs of each class that are predicted; null if there are none


def class_report(report: "ClassificationReport") -> dict[str, Any]:
    """The fields of a report."""
    return ClassReportFields.fill(report, classes=[str(name) for name in report.classes])


def majority(report: dict[str, Any]) -> str:
    """The share of the largest training class; the count if there are few rows."""
    number = sum(map(sum, report["confusion"]))
    return counts(report["majority"], number) if number < FEW_ROWS else percent(report["majority"])


def report_rows(report: dict[str, Any]) -> Rows:
    """Rows below that of the accuracy, which say what it is worth."""
    auroc = report["auroc"]
    return [
        ("… of the largest training class", majority(report)),
        ("balanced accuracy", percent(report["balanced_accuracy"])),
        ("AUROC", "-" if auroc is None else f"{auroc:.3f}"),
    ]


def class_table(report: dict[str, Any], rows: str, title: str = "") -> Table:
    """Precision, recall and the confusion matrix; ``rows``: what its entries count."""
    names, confusion = report["classes"], report["confusion"]
    few = len(names) <= MOST_CLASSES
    predicted = [f"as {name}" for name in names] if few else ["most often predicted as"]
    table = []
    for number, (name, row) in enumerate(zip(names, confusion, strict=True)):
        shares = (_share(row[number], total) for total in (sum(one[number] for one in confusion), sum(row)))
        table.append([name, f"{sum(row):,}", *shares, *(map(str, row) if few else [names[row.index(max(row))]])])
    return Table(table, ["class", rows, "precision", "recall", *predicted], title, "compared")


def one_class(report: dict[str, Any]) -> str:
    """The class that is always predicted; empty if there are several."""
    predicted = [name for name, share in zip(report["classes"], report["precision"], strict=True) if share is not None]
    return predicted[0] if len(predicted) == 1 else ""


def _share(right: int, total: int) -> str:
    if not total:
        return "-"
    return f"{right} of {total}" if total < FEW_ROWS else percent(right / total)
