"""The result of ``attsvm inspect`` as JSON-able numbers."""

from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from attsvm.pages.plain import command_result
from attsvm.pages.schemas.inspection import CausalTest, Direction, InspectResult, Origins, View
from attsvm.pages.schemas.inspection import Reasons as ReasonFields
from attsvm.pages.schemas.model import fields_of
from attsvm.results import Status

if TYPE_CHECKING:
    from attsvm._inspect.saved_models import Found, TestedReason
    from attsvm.inspect import Explanation, Inspection
    from attsvm.inspect.heads import Head
    from attsvm.inspect.reasons import Reasons
    from attsvm.inspect.view import HeadView


def inspection_numbers(
    found: "Found",
    *,
    source: dict[str, Any],
    command: str,
    threads: int | None,
    seconds: float,
    interrupted: bool = False,
) -> dict[str, Any]:
    """The result as documented in docs/guide/results.md.

    ``source``: model, text, number of texts. ``interrupted``: whether something is missing in ``found``.
    """
    inspection, twin, steps, tests = found
    return command_result(
        InspectResult,
        command,
        {
            "seed": inspection.seed,
            "threads": threads,
            "seconds": seconds,
            "interrupted": interrupted,
            "source": source,
            "model": {
                "class": inspection.model,
                "family": inspection.family,
                "layers": inspection.layer_names,
                "rotary": inspection.rotary,
                "biased": inspection.biased,
            },
            "data": {**data_numbers(inspection), "special_known": inspection.special_known},
            "gap": inspection.gap,
            "rebuilt_error": max(head.rebuilt_error for head in inspection.heads),
            "heads": [head_numbers(head) for head in inspection.heads],
            "sets": {name: [f"{layer}.{head}" for layer, head in heads] for name, heads in inspection.sets().items()},
            "selected": {f"{head.layer}.{head.head}": head.selected for head in inspection.heads},
            "queries": inspection.positions,
            "twin_gap": None if twin is None else twin.gap,
            "twin": None if twin is None else [head_numbers(head) for head in twin.heads],
            "checkpoints": [{"step": step, "heads": [head_numbers(head) for head in one.heads]} for step, one in steps],
            "view": None if inspection.view is None else _view(inspection.view, tests),
        },
    )


def data_numbers(inspection: "Inspection") -> dict[str, Any]:
    return {
        "sequences": inspection.num_sequences,
        "tokens": inspection.num_tokens,
        "queries": inspection.num_queries,
        "sampled": inspection.sampled,
    }


def head_numbers(head: "Head") -> dict[str, Any]:
    """The measures of a head and its margin interval."""
    numbers: dict[str, Any] = {"layer": head.layer, "head": head.head, **head.numbers}
    margin = head.margin
    if margin is not None:
        numbers["margin_ratio"] = None if margin.upper is None else [margin.lower, margin.upper]
        names = ("status", "margin", "norm", "constraints", "duplicates", "support", "steps")
        numbers |= {name: getattr(margin, name) for name in names}
    elif "margin_ratio" in numbers:
        numbers["status"] = head.status
    return {**numbers, "rebuilt_error": head.rebuilt_error}


def _view(view: "HeadView", tests: "tuple[TestedReason, ...]") -> dict[str, Any]:
    interval = view.interval
    return fields_of(
        View,
        view,
        frobenius_norm=view.norm,
        margin_ratio=None if interval is None or interval.upper is None else [interval.lower, interval.upper],
        status=Status.FINISHED if interval is None else interval.status,
        support=None if view.support is None else np.argwhere(view.support),
        reasons=None if view.reasons is None else _reasons(view.reasons),
        factor_change=None if view.factor_change is None else view.factor_change._asdict(),
        origins=None if view.explanation is None else _origins(view.explanation),
        directions=[fields_of(Direction, one) for one in view.directions],
        tests=[_test(one) for one in tests],
    )


def _test(reason: "TestedReason") -> dict[str, Any]:
    given = {**reason.pair._asdict(), "untested": reason.untested}
    if reason.test is None:
        given = dict.fromkeys(get_type_hints(CausalTest)) | given
    return fields_of(CausalTest, reason.test, **given)


def _origins(explanation: "Explanation") -> dict[str, Any]:
    pairs = [pair._asdict() for pair in explanation.pairs(40)]
    return fields_of(Origins, explanation, terms=explanation.terms()._asdict(), pairs=pairs)


def _reasons(reasons: "Reasons") -> dict[str, Any]:
    return fields_of(ReasonFields, reasons, change=reasons.change._asdict())
