"""Compare measured test accuracies with those that the mirror-descent paper reports."""

import math
from collections.abc import Iterable
from itertools import combinations
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from attsvm.papers.experiments.presets import Preset

ERRORS = 2.0
"""Two accuracies are ordered if they differ by more than this many standard errors of their difference."""

Results = Iterable[dict[str, Any]]


class Accuracy(NamedTuple):
    """Test accuracy of an optimizer with a preset, at the best epoch."""

    preset: str
    optimizer: str
    layers: int
    published: float | None
    measured: list[float]  # one for each seed
    error: float  # standard error of the mean of ``measured``: of the test rows, and of the seeds if there are several
    best_epochs: list[int]  # best_epochs, epochs: the best epoch, and the last one, of each seed
    epochs: list[int]


class Order(NamedTuple):
    """Whether the published order of the optimizers of a preset is that of the measured accuracies."""

    preset: str
    layers: int
    scale: str  # how the preset differs from the sizes that the published accuracies are for; empty if it does not
    published: list[str]  # published, measured: optimizers, the best one first
    measured: list[str]
    # ``holds``; ``holds in part`` if it does for the optimizers that were run, and others were not; ``does not hold``
    # if a pair is in the other order; ``undecided`` if no pair is, but one differs by less than :data:`ERRORS` standard
    # errors; ``not measured`` if fewer than two were run
    verdict: str


def compared(results: list[dict[str, Any]], presets: dict[str, "Preset[Any]"]) -> dict[str, Any] | None:
    """What ``result.json`` holds of published accuracies: those beside the measured ones, and orders.

    ``results``: what ``result.json`` holds, of experiments of one task. ``presets``: of the task.

    None if nothing is published for the presets of the results.
    """
    if not any(presets[result["preset"]].published for result in results if result["preset"] in presets):
        return None
    found = accuracies(results, presets)
    return {
        "accuracies": [one._asdict() for one in found],
        "orders": [order._asdict() for order in orders(found, presets)],
    }


def accuracies(results: Results, presets: dict[str, "Preset[Any]"]) -> list[Accuracy]:
    """Accuracies with all presets of the paper, and with every other preset that has a run."""
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    rows = {}
    for result in results:
        rows[result["preset"]] = result["data"]["test"]
        for run in result["runs"]:
            if run["best"]:
                runs.setdefault((result["preset"], run["optimizer"]), {})[run["seed"]] = run
    found = []
    for name, preset in presets.items():
        measured = [optimizer for of, optimizer in runs if of == name]
        listed = [] if preset.scale and not measured else list(preset.published)
        for optimizer in dict.fromkeys([*listed, *measured]):
            of_seeds = list(runs.get((name, optimizer), {}).values())
            best = [run["best"]["test_accuracy"] for run in of_seeds]
            found.append(
                Accuracy(
                    name,
                    optimizer,
                    preset.shape.blocks.layers,
                    preset.published.get(optimizer),
                    best,
                    _error(best, rows.get(name, 0)),
                    [run["best"]["epoch"] for run in of_seeds],
                    [run["history"][-1]["epoch"] for run in of_seeds],
                )
            )
    return found


def orders(found: list[Accuracy], presets: dict[str, "Preset[Any]"]) -> list[Order]:
    """The order of the optimizers with every preset that has published accuracies."""
    made = []
    for name in dict.fromkeys(one.preset for one in found if one.published is not None):
        of_preset = [one for one in found if one.preset == name and one.published is not None]
        published = sorted(of_preset, key=lambda one: one.published or 0.0, reverse=True)
        run = [one for one in published if one.measured]
        measured = sorted(run, key=lambda one: fmean(one.measured), reverse=True)
        names, names_measured = ([one.optimizer for one in group] for group in (published, measured))
        verdict = _verdict(run, len(published))
        made.append(Order(name, published[0].layers, presets[name].scale, names, names_measured, verdict))
    return made


def _verdict(run: list[Accuracy], published: int) -> str:
    """The verdict on accuracies in their published order."""
    if len(run) < 2:
        return "not measured"
    differences = [
        (fmean(better.measured) - fmean(worse.measured)) / math.hypot(better.error, worse.error)
        for better, worse in combinations(run, 2)
    ]
    if min(differences) < -ERRORS:
        return "does not hold"
    if min(differences) < ERRORS:
        return "undecided"
    return "holds" if len(run) == published else "holds in part"


def _error(measured: list[float], rows: int) -> float:
    if not measured:
        return 0.0
    mean = fmean(measured)
    of_seeds = variance(measured) / len(measured) if len(measured) > 1 else 0.0
    # one row more or less than all right is the least that is known, so the error is never 0
    share = min(max(mean, 1 / rows), 1 - 1 / rows)
    return math.sqrt(share * (1 - share) / rows + of_seeds)
