"""The fields of the results of ``attsvm reproduce``."""

from typing import Any

from attsvm.pages.schemas.model import CommandResult, Fields, Number, path


class RowFields(Fields):
    name: str  # what is measured
    measured: str  # the measured number
    published: str  # the published number; empty if there is none


class ReproduceResult(CommandResult, schema="attsvm.reproduce/1"):
    name: str = path("figure.name")  # name of the figure or table
    paper: str = path("figure.paper")  # the paper that it is from
    title: str = path("figure.title")  # its title
    claim: str = path("figure.claim")  # what the paper claims
    criterion: str = path("figure.criterion")  # when the measured numbers meet the claim
    quick: bool  # whether the sizes are those of --quick, by which no claim is judged
    sizes: dict[str, Any]  # the sizes of the measurement
    verdict: str = path("standing")  # holds, holds in part, or does not hold
    why: str = path("verdict.why")  # the numbers that decide
    table: list[RowFields] = path("rows")  # rows of the table: measured beside published numbers
    seconds: Number  # wall time of the measurement, in seconds
    device: str  # device of the training
    pieces: int  # number of pieces of the measurement
    pieces_reused: int = path("reused")  # number of them that an earlier run had finished
    measured: dict[str, Any] = path("arrays")  # the measured arrays, by name


class FiguresResult(CommandResult, schema="attsvm.figures/1"):
    figures: dict[str, ReproduceResult]  # the content of NAME.json of each figure, by name


class ListedFields(Fields):
    name: str  # its name on the command line
    title: str  # its title
    seconds: Number  # the time it takes at full size on two cores, in seconds; null if it is not known


class FigureListResult(CommandResult, schema="attsvm.figure-list/1"):
    figures: list[ListedFields]  # one entry for each figure or table of attsvm reproduce
