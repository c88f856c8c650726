"""The fields of the results of ``attsvm predict``."""

from attsvm.pages.class_report import ClassReportFields
from attsvm.pages.schemas.model import CommandResult, Fields, Number


class ModelFields(Fields):
    source: str  # the file as in the command
    kind: str  # name of its class
    classes: list[str]  # names of the classes


class BagFields(Fields):
    bag: str  # its name, or its number: of a bag from 0, of a text from 1
    predicted: str  # the most probable class
    probability: list[Number]  # of each class
    # the selected token: its row in a table, counted from 1 below the header, its number in the bag from 0, or a word
    selected: int | str | None
    share: Number  # of the selected token in the attention; null for detectors
    label: str | None  # what the bag is known to be; null without labels


class PredictResult(CommandResult, schema="attsvm.predict/1"):
    threads: int | None  # the limit set by --threads; null without one
    model: ModelFields  # the fitted estimator
    source: str  # the data as in the command
    counts: dict[str, int]  # number of bags that are predicted as each class
    accuracy: Number  # share of the bags that are classified correctly; null without labels
    report: ClassReportFields | None  # how well each class is predicted; null without labels
    predictions: list[BagFields]  # one entry for each bag
