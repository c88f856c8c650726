"""The fields of the results of ``attsvm sweep``."""

from typing import Any

from attsvm.pages.schemas.model import CommandResult, Fields, Nested, Number, path


class VariableFields(Fields):
    dims: list[str]  # names of its axes
    shape: list[int]  # its shape
    attributes: dict[str, Any]  # its attributes, such as the meanings of codes


class SweepResult(CommandResult, schema="attsvm.sweep/1"):
    store: str  # folder of the sweep
    attributes: dict[str, Any]  # attributes of the store: its definition, seed, hash and errors
    variables: dict[str, VariableFields]  # the arrays of the store, by name


class SweepFields(Fields):
    name: str  # name of a ready sweep; empty for another one
    version: str  # version of attsvm that made it
    command: str  # the command line that made it
    seed: int  # seed of its random numbers
    hash: str  # SHA-256 of its definition


class EstimateFields(Fields):
    measure: str  # name of the output
    of: str = path("name")  # the code or the coordinate; empty if there is none
    interval: str  # wilson or bootstrap
    # share or mean, an array over the grid; null where nothing is measured
    estimate: Nested[Number] = path("estimate.value")
    # lower end of the interval, an array over the grid; null for a mean of one trial or of equal values
    low: Nested[Number] = path("estimate.low")
    # upper end of the interval, an array over the grid; null for a mean of one trial or of equal values
    high: Nested[Number] = path("estimate.high")
    trials: Nested[int] = path("estimate.trials")  # number of trials of the estimate, an array over the grid


class SweepShowResult(CommandResult, schema="attsvm.sweep_show/1"):
    sweep: SweepFields = path("attributes")  # the sweep that is shown
    axes: dict[str, list[Any]]  # the values of each axis of the grid
    trials: int  # number of trials of a cell
    finished_trials: Nested[int] = path("done")  # number of finished trials, an array over the grid
    errors: list[Any]  # failed chunks: cell, trials, attempts, error and traceback
    level: Number  # level of the intervals, such as 0.95
    estimates: list[EstimateFields]  # one entry for each output of a measure, or code or coordinate of it
