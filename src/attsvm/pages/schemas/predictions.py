"""The fields of the results of ``attsvm predict``, for classes and for numbers."""

from typing import Literal

from attsvm.pages.class_report import ClassReportFields
from attsvm.pages.schemas.model import CommandResult, Fields, Number


class ModelFields(Fields):
    source: str  # the file as in the command
    kind: str  # name of its class
    classes: list[str]  # names of the classes
    # what decides together with attention or detectors: names of the members of an ensemble; for texts "n-grams", or
    # "n-grams alone"; empty if nothing does
    ensemble: list[str]


class BagFields(Fields):
    bag: str  # its name, or its number from 0
    predicted: str  # the most probable class
    probability: list[Number]  # of each class
    # the selected token: its row in a table below the header, or its number in the bag, both from 0; or a word
    selected: int | str | None
    # part of the selected token in the output for the predicted class, of two classes in its log odds; null for texts
    contribution: Number
    share: Number  # of the selected token in the attention; null for detectors, ensembles and texts without known words
    label: str | None  # what the bag is known to be; null without labels


class PredictResult(CommandResult, schema="attsvm.predict/1"):
    threads: int | None  # the limit set by --threads; null without one
    model: ModelFields  # the fitted estimator
    source: str  # the data as in the command
    # what the selected token has the most of: contribution to the predicted class, for detectors of two classes to the
    # positive one; or attention, for texts
    selected_by: Literal["contribution", "attention"]
    counts: dict[str, int]  # number of bags that are predicted as each class
    accuracy: Number  # share of the bags that are classified correctly; null without labels
    report: ClassReportFields | None  # how well each class is predicted; null without labels
    predictions: list[BagFields]  # one entry for each bag


class RegressorFields(Fields):
    source: str  # the file as in the command
    kind: str  # name of its class


class RegressionReportFields(Fields):
    mae: Number  # mean absolute error, in the unit of the targets
    rmse: Number  # root mean squared error, in the unit of the targets
    r2: Number  # 1 for perfect predictions, 0 for the mean of these targets; null for a single bag
    constant_mae: Number  # mean absolute error of always predicting the constant
    constant_rmse: Number  # root mean squared error of always predicting the constant
    below: Number  # share of the targets that are at most the prediction; for a quantile it should be near it


class BagNumberFields(Fields):
    bag: str  # its name, or its number from 0
    value: Number  # what is predicted
    # the selected token: its row in a table below the header, or its number in the bag, both from 0
    selected: int | str | None
    contribution: Number  # part of the selected token in the value minus the constant
    share: Number  # of the selected token in the attention
    target: Number  # what the bag is known to have; null without targets


class PredictNumbersResult(CommandResult, schema="attsvm.predict-numbers/1"):
    threads: int | None  # the limit set by --threads; null without one
    model: RegressorFields  # the fitted estimator
    source: str  # the data as in the command
    # what the values are: mean or quantile in the unit of the training targets, or log hazard ratio, without a unit
    quantity: Literal["mean", "quantile", "log hazard ratio"]
    quantile: Number  # which quantile the values are; null for others
    # what is predicted without looking at a bag: mean or quantile of the training targets; 0 for log hazard ratios,
    # which are relative to a bag whose tokens are all the mean training token
    constant: Number
    report: RegressionReportFields | None  # how well targets are predicted; null without targets
    predictions: list[BagNumberFields]  # one entry for each bag
