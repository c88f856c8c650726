"""Compare measured test accuracies with those that the mirror-descent paper reports."""

import math
from itertools import combinations
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attsvm.papers.experiments.presets import Preset

ERRORS = 2.0
"""Two accuracies are ordered if they differ by more than this many standard errors of their difference."""

Values = dict[str, Any]
"""Fields of ``result.json``; :mod:`attsvm.pages.schemas.experiment` says what each is."""


def compared(results: list[Values], presets: "dict[str, Preset[Any]]") -> Values | None:
    """What ``result.json`` holds of published accuracies: those beside the measured ones, and orders.

    ``results``: what ``result.json`` holds, of experiments of one task. ``presets``: of the task.

    None if nothing is published for the presets of the results.
    """
    if not any(presets[result["preset"]].published for result in results if result["preset"] in presets):
        return None
    found = [one for name, preset in presets.items() for one in _accuracies(name, preset, results)]
    with_order = dict.fromkeys(one["preset"] for one in found if one["published"] is not None)
    return {"accuracies": found, "orders": [_order(name, presets[name].scale, found) for name in with_order]}


def _accuracies(name: str, preset: "Preset[Any]", results: list[Values]) -> list[Values]:
    """Accuracies with a preset, if it has a run or is of the paper; its runs with one seed count once."""
    rows = 0
    runs: dict[str, dict[int, Values]] = {}
    for result in results:
        if result["preset"] == name:
            rows = result["data"]["test"]
            for run in result["runs"]:
                if run["best"]:
                    runs.setdefault(run["optimizer"], {})[run["seed"]] = run
    listed = [] if preset.scale and not runs else preset.published
    found = []
    for optimizer in dict.fromkeys([*listed, *runs]):
        of_seeds = list(runs.get(optimizer, {}).values())
        best = [run["best"]["test_accuracy"] for run in of_seeds]
        found.append(
            {
                "preset": name,
                "optimizer": optimizer,
                "layers": preset.shape.blocks.layers,
                "published": preset.published.get(optimizer),
                "measured": best,
                "error": _error(best, rows),
                "best_epochs": [run["best"]["epoch"] for run in of_seeds],
                "epochs": [run["history"][-1]["epoch"] for run in of_seeds],
            }
        )
    return found


def _order(name: str, scale: str, found: list[Values]) -> Values:
    """The published and the measured order of the optimisers with a preset, and whether they agree."""
    of_preset = [one for one in found if one["preset"] == name and one["published"] is not None]
    published = sorted(of_preset, key=lambda one: one["published"], reverse=True)
    run = [one for one in published if one["measured"]]
    measured = sorted(run, key=lambda one: fmean(one["measured"]), reverse=True)
    return {
        "preset": name,
        "layers": published[0]["layers"],
        "scale": scale,
        "published": [one["optimizer"] for one in published],
        "measured": [one["optimizer"] for one in measured],
        "verdict": _verdict(run, len(published)),
    }


def _verdict(run: list[Values], published: int) -> str:
    """The verdict on accuracies in their published order.

    ``holds``; ``holds in part`` if it does for the optimisers that were run, and others were not; ``does not hold`` if
    a pair is in the other order; ``undecided`` if no pair is, but one differs by less than :data:`ERRORS` standard
    errors; ``not measured`` if fewer than two were run.
    """
    if len(run) < 2:
        return "not measured"
    differences = [
        (fmean(better["measured"]) - fmean(worse["measured"])) / math.hypot(better["error"], worse["error"])
        for better, worse in combinations(run, 2)
    ]
    if min(differences) < -ERRORS:
        return "does not hold"
    if min(differences) < ERRORS:
        return "undecided"
    return "holds" if len(run) == published else "holds in part"


def _error(measured: list[float], rows: int) -> float:
    """Standard error of the mean: of the test rows, and of the seeds if there are several."""
    if not measured:
        return 0.0
    mean = fmean(measured)
    of_seeds = variance(measured) / len(measured) if len(measured) > 1 else 0.0
    # one row more or less than all right is the least that is known, so the error is never 0
    share = min(max(mean, 1 / rows), 1 - 1 / rows)
    return math.sqrt(share * (1 - share) / rows + of_seeds)
