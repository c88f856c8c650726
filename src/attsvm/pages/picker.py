"""The grid of all heads, and the head that a reader picks: what the script of a page, or of a notebook, reads."""

import base64
import io
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from attsvm._utils.text import visible
from attsvm.pages.html import environment
from attsvm.pages.plain import jsonable
from attsvm.pages.words import layer_labels

if TYPE_CHECKING:
    from attsvm.inspect import Head, HeadGrid, Inspection

MORE_PAIRS = 500_000
"""A page shows further sequences up to so many pairs of a query and a token over all heads: about as many bytes."""


def picker(grid: "HeadGrid") -> dict[str, Any]:
    """What the template of the grid shows: rows of names of heads, and the data of its script."""
    inspection = grid.inspection
    measures = [one for one in inspection.measures if not np.isnan(inspection.measure(one.name)).all()]
    heads, grids = {(one.layer, one.head): one for one in inspection.heads}, []
    shown: list[dict[str, Any]] = []
    for number, one in enumerate(grid.grids):
        places = [*one.sequences[0].levels]
        rows = {layer: [f"{layer}.{head}" for of, head in places if of == layer] for layer, _ in places}
        columns, letters = max(map(len, rows.values())), max(len(name) for names in rows.values() for name in names)
        grids.append({"kind": one.kind, "rows": rows, "columns": columns, "letters": letters})
        for at in places:
            seen = one.sequences
            selected = [np.searchsorted(s.columns, heads[at].selected[s.number, s.rows]).tolist() for s in seen]
            values = [heads[at].numbers.get(measure.name) for measure in measures]
            support = _support(inspection, at, seen)
            shown.append({"at": at, "grid": number, "values": values, "selected": selected, "support": support})
    data = {
        "layers": layer_labels(inspection.layer_names),
        "measures": [one.title for one in measures],
        "grids": [
            {"levels": one.levels, "total": one.total, "sequences": [_sequence(s) for s in one.sequences]}
            for one in grid.grids
        ],
        "heads": shown,
        "first": _first(inspection, [one["at"] for one in shown]),
    }
    return {"grids": grids, "names": inspection.layer_names, "data": jsonable(data)}


def notebook_html(grid: "HeadGrid") -> Markup:
    """The grid with its styles and its script, for a notebook."""
    return Markup(visible(environment().get_template("notebook.html.j2").render(one=picker(grid))))


def _sequence(seen: Any) -> dict[str, Any]:
    """A sequence of the grid, with the levels of all heads one after another."""
    packed = zlib.compress(b"".join(levels.tobytes() for levels in seen.levels.values()))
    picture = None
    if seen.picture is not None:
        from PIL import Image  # Matplotlib needs it, too

        file, (pixels, *places) = io.BytesIO(), seen.picture
        Image.fromarray(pixels.repeat(3, axis=2) if pixels.shape[2] == 1 else pixels).save(file, "JPEG", quality=85)
        picture = [f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}", *places]
    return {
        "number": seen.number,
        "tokens": [*map(visible, seen.tokens)],
        "queries": None if seen.places is not None else [*map(visible, seen.queries)],
        "places": seen.places,
        "picture": picture,
        "packed": base64.b64encode(packed).decode(),
    }


def _first(inspection: "Inspection", places: list[tuple[int, int]]) -> tuple[int, int]:
    """The head that is picked at first: the one in detail, else that with the largest margin ratio or probability."""
    detail = inspection.detail
    if detail is not None and (detail.layer, detail.head) in places:
        return detail.layer, detail.head

    def notable(head: "Head") -> tuple[float, ...]:
        return tuple(head.numbers.get(name) or 0.0 for name in ("margin_ratio", "largest_probability"))

    one = max((head for head in inspection.heads if (head.layer, head.head) in places), key=notable)
    return one.layer, one.head


def _support(inspection: "Inspection", at: tuple[int, int], seen: list[Any]) -> list[str] | None:
    """For each sequence a bit for each query and token, set for support tokens; None if they are not known."""
    found = (inspection.supports or {}).get(at)
    if found is None:
        return None
    packed = []
    for one in seen:
        _, places, tokens = found[found[:, 0] == one.number].T
        bits = np.zeros((len(one.rows), len(one.columns)), bool)
        bits[np.searchsorted(one.rows, places), np.searchsorted(one.columns, tokens)] = True
        packed.append(base64.b64encode(np.packbits(bits).tobytes()).decode())
    return packed
