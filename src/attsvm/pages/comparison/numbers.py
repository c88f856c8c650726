"""The result of ``attsvm compare`` as JSON-able numbers."""

from typing import TYPE_CHECKING, Any

from attsvm.pages.inspection.numbers import head_numbers
from attsvm.pages.plain import command_result

if TYPE_CHECKING:
    from attsvm.inspect.series import Series

SCHEMA = "attsvm.compare/1"


def comparison_numbers(
    series: "Series", *, source: dict[str, Any], command: str, threads: int | None, seconds: float
) -> dict[str, Any]:
    """The result as documented in docs/guide/results.md.

    ``source``: models and text, as given.
    """
    first = series.inspections[0]
    return command_result(
        SCHEMA,
        command,
        {
            "seed": first.seed,
            "threads": threads,
            "seconds": seconds,
            "source": source,
            "data": {
                "sequences": first.num_sequences,
                "tokens": first.num_tokens,
                "queries": first.num_queries,
                "sampled": first.sampled,
            },
            "gap": first.gap,
            "models": [
                {
                    "name": name,
                    "step": None if series.steps is None else series.steps[k],
                    "class": one.model,
                    "family": one.family,
                    "rebuilt_error": max(head.rebuilt_error for head in one.heads),
                    "heads": [head_numbers(head) for head in one.heads],
                }
                for k, (name, one) in enumerate(zip(series.names, series.inspections, strict=True))
            ],
            "changes": [
                {
                    "layer": one.layer,
                    "head": one.head,
                    "changed": one.changed,
                    "since_first": series.since_first[one.layer, one.head],
                    "since_previous": series.since_previous[one.layer, one.head],
                    "margin_moved": None if one.margin is None else one.margin_moved,
                    "weights": None if one.weights is None else one.weights._asdict(),
                    "queries": one.queries,
                    "before": one.before,
                    "after": one.after,
                }
                for one in series.total.heads
            ],
        },
    )
