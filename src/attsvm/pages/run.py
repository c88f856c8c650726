"""The page of ``attsvm train``: how a run ended."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.norms import Lp
from attsvm.pages.page import Page, Table
from attsvm.pages.schemas.problems import TrainResult
from attsvm.pages.words import Rows, number, status_counts, status_words
from attsvm.problem import Problem
from attsvm.training import Run

if TYPE_CHECKING:
    from attsvm.theory import Prediction

LONGEST_SELECTION = 20
"""Most queries whose selected tokens are printed."""


def run_page(run: Run, *, problem: Problem, prediction: "Prediction | None" = None, source: str, **about: Any) -> Page:
    """Make the page of a run, whose numbers docs/guide/results.md documents; it has no HTML.

    ``about``: the command, the limit on threads and the seconds.
    """
    counted = np.broadcast_to(problem.canonical.active.reshape(problem.query_shape), run.selected.shape)
    largest = run.probability[counted]
    precise = np.asarray(-1 if run.precise_until is None else run.precise_until)
    numbers = TrainResult.fill(
        run,
        **about,
        data={"source": source, "sha256": problem.data_hash},
        norm_of_optimizer=None if run.limit.norm is None else run.limit.norm.name,
        trials=int(np.prod(run.batch_shape, dtype=int)),
        status=status_counts(run.status),
        loss=np.mean(run.loss),
        median_largest_probability=np.median(largest),
        lowest_largest_probability=np.min(largest),
        weights_norm=np.median(Lp(2.0).values(run.weights, 2 if problem.has_queries else 1)),
        log_scale=np.median(run.log_scale),
        trials_past_precision=int((precise >= 0).sum()),
        precise_until=int(precise[precise >= 0].min()) if (precise >= 0).any() else None,
        selected=None if run.batch_shape or run.by_sign else run.selected,
        prediction=prediction,
    )
    return Page(numbers, terminal=[Table(_rows(numbers))])


def _rows(result: dict[str, Any]) -> Rows:
    rows = [
        ("status", status_words(result["status"])),
        ("steps", f"{result['steps']:,}"),
        ("loss" if result["trials"] == 1 else "mean loss", number(result["loss"])),
        ("median largest probability", number(result["median_largest_probability"])),
        ("lowest largest probability", number(result["lowest_largest_probability"])),
        ("norm of the weights", number(result["weights_norm"])),
    ]
    if result["log_scale"]:
        rows.append(("logarithm of a further factor", number(result["log_scale"])))
    if result["selected"] is not None and len(result["selected"]) <= LONGEST_SELECTION:
        rows.append(("selected", " ".join(str(entry) for entry in result["selected"])))
    if result["precise_until"] is not None:
        step = f"{result['precise_until']:,}; from then on, rounding affects the run"
        rows.append(("logits passed 1e8 at step", step))
    kept = f", {', '.join(result['fixed'])} fixed" if result["fixed"] else ""
    kept += "" if result["map"] == "softmax" else f", {result['map']}"
    kept += f", penalty {result['penalty']:g}" if isinstance(result["penalty"], float) and result["penalty"] else ""
    rows.append(("trained by", f"{result['optimizer']}, {result['attention']} attention{kept}"))
    rows.append(("seconds", f"{result['seconds']:.3g}"))
    if result["prediction"] is not None:
        rows.append((f"predicted, {result['prediction']['standing']}", result["prediction"]["source"]))
        verdicts = {True: "holds", False: "does not hold", None: "not decided"}
        rows += [(verdicts[one["holds"]], one["statement"]) for one in result["prediction"]["hypotheses"]]
    return rows
