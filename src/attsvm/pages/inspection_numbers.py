"""The result of ``attsvm inspect`` as JSON-able numbers."""

from typing import TYPE_CHECKING, Any, get_type_hints

import numpy as np

from attsvm.pages.schemas.inspection import (
    CausalTestFields,
    HeadEffectFields,
    HeadFields,
    InspectResult,
    LayerGroupFields,
    OriginsFields,
    ViewFields,
)
from attsvm.results import Status

if TYPE_CHECKING:
    from attsvm.inspect import Effects, Explanation, FoundInspections, Head, HeadView, Inspection, TestedReason
    from attsvm.svm import MarginInterval


def inspection_numbers(found: "FoundInspections", **about: Any) -> dict[str, Any]:
    """The result as documented in docs/guide/results.md.

    ``about``: the fields that ``found`` does not have: ``source``, ``command``, ``threads``, ``seconds``, and
    ``interrupted``, whether something is missing in it.
    """
    inspection, twin, steps, tests, effects = found
    return InspectResult.fill(
        inspection,
        **about,
        model=inspection,
        data=inspection,
        rebuilt_error=largest_error(inspection),
        heads=[head_numbers(head) for head in inspection.heads],
        groups=[LayerGroupFields.fill(group) for group in inspection.groups],
        sets={name: [f"{layer}.{head}" for layer, head in heads] for name, heads in inspection.sets().items()},
        selected={f"{head.layer}.{head.head}": head.selected for head in inspection.heads},
        twin_gap=None if twin is None else twin.gap,
        twin=None if twin is None else [head_numbers(head) for head in twin.heads],
        checkpoints=[{"step": step, "heads": [head_numbers(head) for head in one.heads]} for step, one in steps],
        view=None if inspection.detail is None else _view(inspection.detail, tests),
        effects=None if effects is None else _effects(effects),
    )


def largest_error(inspection: "Inspection") -> float | None:
    """The largest difference of a head's attention from the model's own; None if it was not compared."""
    known = [head.rebuilt_error for head in inspection.heads if not np.isnan(head.rebuilt_error)]
    return max(known, default=None)


def head_numbers(head: "Head") -> dict[str, Any]:
    """The measures of a head and its margin interval."""
    numbers: dict[str, Any] = {"layer": head.layer, "head": head.head, **head.numbers}
    if head.margin is not None:
        numbers |= vars(head.margin) | {"margin_ratio": _ends(head.margin)}
    elif "margin_ratio" in numbers:
        numbers["status"] = head.status
    return HeadFields.fill(numbers, rebuilt_error=None if np.isnan(head.rebuilt_error) else head.rebuilt_error)


def _ends(interval: "MarginInterval | None") -> list[float] | None:
    if interval is None or interval.lower is None or interval.upper is None:
        return None
    return [interval.lower, interval.upper]


def _view(view: "HeadView", tests: "tuple[TestedReason, ...]") -> dict[str, Any]:
    return ViewFields.fill(
        view,
        margin_ratio=_ends(view.interval),
        status=Status.FINISHED if view.interval is None else view.interval.status,
        support=None if view.support is None else np.argwhere(view.support),
        origins=None if view.explanation is None else _origins(view.explanation),
        tests=[_test(one) for one in tests],
    )


def _effects(effects: "Effects") -> dict[str, Any]:
    estimates = zip(*effects.cost[:3], strict=True)
    columns = {name: value for name, value in vars(effects).items() if isinstance(value, np.ndarray)}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    heads = [HeadEffectFields.fill(row, cost=list(cost)) for row, cost in zip(rows, estimates, strict=True)]
    return {"measure": effects.measure, "unattributed": effects.unattributed, "heads": heads}


def _test(reason: "TestedReason") -> dict[str, Any]:
    given = {**reason.pair._asdict(), "untested": reason.untested}
    if reason.test is None:
        given = dict.fromkeys(get_type_hints(CausalTestFields)) | given
    else:
        given |= {"sufficiency": reason.test.sufficiency[:3], "necessity": reason.test.necessity[:3]}
    return CausalTestFields.fill(reason.test, **given)


def _origins(explanation: "Explanation") -> dict[str, Any]:
    return OriginsFields.fill(explanation, terms=explanation.terms(), pairs=explanation.pairs(40))
