"""The recorded attention of several runs at common steps, for a slider."""

from typing import Any


def by_attention(runs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All runs, those that diverged last, and the others alone, whose attention is shown."""
    shown = [run for run in runs if run["over_steps"]]
    return shown + [run for run in runs if not run["over_steps"]], shown


def at_common_steps(runs: list[dict[str, Any]]) -> tuple[list[int], list[list[list[Any]]]]:
    """The steps that some run has recorded, and for each run its attention at each of them.

    A run that ended before a step has the attention of its end there.

    ``runs``: of ``result.json``.

    Returns ``steps`` and ``attention`` (for each run and each step the attention to each sentence or picture).

    Examples
    --------
    >>> from attsvm.pages.experiment.history import at_common_steps
    >>> records = [{"step": 0, "attention": ["even"]}, {"step": 2, "attention": ["sparse"]}]
    >>> at_common_steps([{"over_steps": records}, {"over_steps": records[:1]}])
    ([0, 2], [[['even'], ['sparse']], [['even'], ['even']]])
    """
    steps = sorted({record["step"] for run in runs for record in run["over_steps"]})
    return steps, [[_latest(run["over_steps"], step) for step in steps] for run in runs]


def _latest(records: list[dict[str, Any]], step: int) -> list[Any]:
    """The attention of the last record up to a step; that of the first one if there is none."""
    before = [record for record in records if record["step"] <= step]
    attention: list[Any] = (before or records)[-1 if before else 0]["attention"]
    return attention
