"""The result of ``attsvm inspect`` as JSON-able numbers."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attsvm.pages.plain import command_result
from attsvm.results import Status

if TYPE_CHECKING:
    from attsvm.inspect import Explanation, Inspection
    from attsvm.inspect.directions import ReadingDirection
    from attsvm.inspect.heads import Head
    from attsvm.inspect.reasons import Reasons
    from attsvm.inspect.saved_models import Found, TestedReason
    from attsvm.inspect.view import HeadView

SCHEMA = "attsvm.inspect/2"


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
        SCHEMA,
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
            "view": None
            if inspection.view is None
            else _view(inspection.view) | {"tests": [_test(one) for one in tests]},
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


def _view(view: "HeadView") -> dict[str, Any]:
    interval = view.interval
    ends = None if interval is None or interval.upper is None else [interval.lower, interval.upper]
    return {
        "layer": view.layer,
        "head": view.head,
        "frobenius_norm": view.norm,
        "nuclear_norm": view.nuclear_norm,
        "spectral_norm": view.spectral_norm,
        "singular_values": view.singular_values,
        "margin_ratio": ends,
        "status": Status.FINISHED if interval is None else interval.status,
        "support": None if view.support is None else np.argwhere(view.support),
        "reasons": None if view.reasons is None else _reasons(view.reasons),
        "factor_change": None if view.factor_change is None else view.factor_change._asdict(),
        "origins": None if view.explanation is None else _origins(view.explanation),
        "directions": [_direction(one) for one in view.directions],
    }


def _direction(direction: "ReadingDirection") -> dict[str, Any]:
    ends = {"query_ends": direction.query_ends, "key_ends": direction.key_ends}
    vocabulary = direction.vocabulary_ends
    return {
        "value": direction.value,
        "share": direction.share,
        **{name: list(both) for name, both in ends.items()},
        "vocabulary_ends": None if vocabulary is None else list(vocabulary),
    }


def _test(reason: "TestedReason") -> dict[str, Any]:
    test = reason.test
    names = (
        "score", "resampled", "alone", "without_query", "without_key", "sufficiency", "necessity",
        "control_sufficiency", "control_necessity", "passed",
    )  # fmt: skip
    return {
        **reason.pair._asdict(),
        **({name: None if test is None else getattr(test, name) for name in names}),
        "untested": reason.untested,
    }


def _origins(explanation: "Explanation") -> dict[str, Any]:
    return {
        "margin": explanation.margin,
        "error": explanation.error,
        "terms": explanation.terms()._asdict(),
        "groups": explanation.groups,
        "pairs": [pair._asdict() for pair in explanation.pairs(40)],
    }


def _reasons(reasons: "Reasons") -> dict[str, Any]:
    return {
        "triples": reasons.triples,
        "shares": reasons.shares,
        "cosine": reasons.cosine,
        "overlap": reasons.overlap,
        "chance": reasons.chance,
        "change": reasons.change._asdict(),
    }
