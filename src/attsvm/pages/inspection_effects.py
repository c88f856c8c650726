"""What the heads of an inspection do: what each selects and writes, and what removing it costs."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from attsvm.pages.inspection_view import interval_words
from attsvm.pages.page import Table
from attsvm.pages.words import percent, short

if TYPE_CHECKING:
    from attsvm.inspect import Effects, Inspection


def effects_words(effects: "Effects") -> str:
    """What the columns of the table are."""
    said = "What a head writes is what it adds to the residual stream; its norm is relative to that of the stream. "
    if not effects.unattributed:
        said += (
            "The tokens are those whose logits it raises most on average over the queries, directly through the last "
            "norm at its actual scale; the number is for the target. "
        )
    measure = "increase of the loss, in nats" if effects.measure == "loss" else f"mean {effects.measure}"
    return (
        f"{said}Removing a head replaces its output by its output at a random place in the text, or by its mean. The "
        "cost is"
        f" the {measure}: the mean over {effects.costs.shape[1]} draws ± half of Student's 95 % interval, which does"
        " not cover the choice of the text."
    )


def effects_table(
    inspection: "Inspection", effects: "Effects", words: Callable[[list[int]], list[str]] | None
) -> Table:
    """A row for each head, the most costly first."""
    margins = {(one.layer, one.head): one.margin for one in inspection.heads}
    solved = any(margin is not None for margin in margins.values())
    columns = ["head", "selects", *(["Margin over the best"] if solved else [])]
    columns += [*([] if effects.unattributed else ["writes"]), "of the stream", "removing it costs", "by its mean"]
    found = []
    for k, (head, selects, writes, cost) in enumerate(effects.rows(words)):
        margin = margins[int(effects.layer[k]), int(effects.head[k])]
        ratio = ["-" if margin is None else interval_words(margin)] if solved else []
        share = "-" if np.isnan(effects.share[k]) else percent(float(effects.share[k]))
        written = [] if effects.unattributed else [writes]
        found.append((head, selects, *ratio, *written, share, cost, short(float(effects.mean_cost[k]))))
    order = np.argsort(-effects.cost.value, kind="stable")
    return Table([found[k] for k in order], columns, kind="heads", words=2)
