"""The page of a record: every measure over the steps, and the last values of all heads."""

from pathlib import Path
from typing import Any

import numpy as np

from attsvm.pages.claim import claim_folder
from attsvm.pages.drawn import Shown
from attsvm.pages.monitor.figures import draw_curves, draw_maps
from attsvm.pages.monitor.records import Records, joined
from attsvm.pages.monitor.words import head_rows, monitor_numbers, notes, summary, verdict
from attsvm.pages.render import render
from attsvm.pages.write import write_page


def write_monitor(folder: Path, records: Records, result: dict[str, Any]) -> None:
    """Write ``index.html``, ``figures/*.png`` and ``result.json``.

    ``folder``: an existing folder, from :func:`attsvm.pages.claim.claim_folder`. ``result``: of
    :func:`attsvm.pages.monitor.words.monitor_numbers`.
    """
    curves, maps = draw_curves(records), draw_maps(records)
    write_page(folder, monitor_page(records, result, curves, maps), [*curves, *maps], result)


def write_records(
    out: str | Path, force: bool, heads: list[str], records: list[tuple[int, dict[str, np.ndarray]]], command: str
) -> None:
    """Write the page of a monitor in Python, as :meth:`attsvm.inspect.AttentionMonitor.page` documents."""
    found = joined(heads, records)
    with claim_folder(out, force) as folder:
        write_monitor(folder, found, monitor_numbers(found, source=None, command=command))


def monitor_page(records: Records, result: dict[str, Any], curves: list[Shown], maps: list[Shown]) -> str:
    """The whole page as HTML, from the arguments of :func:`write_monitor` and its figures."""
    columns, rows = head_rows(records)
    return render(
        "monitor.html.j2",
        title="Attention heads during training",
        kicker=summary(records),
        verdict=verdict(records),
        notes=notes(records),
        entries=[{"name": f"figure-{one.name}", "title": one.title} for one in (*curves, *maps)]
        + [{"name": "last", "title": "Last values"}],
        curves=curves,
        maps=maps,
        made_by=summary(records),
        columns=columns,
        rows=rows,
        command=result["command"],
        result=result,
    )
