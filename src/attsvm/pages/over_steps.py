"""A slider over the steps of training: it changes how strongly parts of a figure or a table are shown.

Without the script of the page the last step is shown.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

LAYER = "step-"


class OverSteps(NamedTuple):
    """How strongly parts of a figure are shown at recorded steps."""

    steps: Sequence[int]  # the figure shows the last one
    shares: Mapping[str, Sequence[float]]  # by the gid of an artist of matplotlib, its opacity at each of the steps


def slider_attributes(shares: Sequence[float], said: Sequence[str] = ()) -> Markup:
    """The attributes of an element that the slider changes: an opacity in a drawing, the shade of a cell or a word.

    ``shares``: one for each step. ``said``: the number in the element's title at each step; by default the share.
    """
    words = Markup(f' data-said="{" ".join(said)}"') if said else ""
    written = " ".join(f"{share:.3g}".removeprefix("0" * (0 < share < 1)) for share in shares)
    return Markup(f'data-over="{written}"') + words


def slider(steps: Sequence[int]) -> Markup:
    """The slider of the figure or section that it stands in; hidden without the script of the page.

    Of a single step there is none.
    """
    if len(steps) < 2:
        return Markup("")
    last = len(steps) - 1
    numbers = json.dumps([int(step) for step in steps])
    return Markup(
        f'<p class="over-steps" hidden><label>Step <input type="range" min="0" max="{last}" value="{last}" '
        f'data-steps="{numbers}"></label> <output>{steps[last]:,}</output></p>'
    )


def slider_words(steps: Sequence[int]) -> str:
    """Explain the slider of attention, after another sentence; empty without a slider."""
    return " The slider shows the attention at earlier training steps." if len(steps) > 1 else ""


def at_step(step: int, name: str) -> str:
    """The gid of an artist that is shown at one step only. Set those of all steps but the last to be invisible."""
    return f"{LAYER}{step}-{name}"


def is_layer(artist: "Artist") -> bool:
    """Whether an artist has a gid of :func:`at_step`."""
    return str(artist.get_gid()).startswith(LAYER)


@contextmanager
def all_layers(figure: "Figure") -> Iterator[dict[str, int]]:
    """A context in which the artists of all steps are visible. Yields the step of each, by its gid."""
    artists = [artist for artist in figure.findobj() if is_layer(artist)]
    hidden = [artist for artist in artists if not artist.get_visible()]
    for artist in hidden:
        artist.set_visible(True)
    gids = [str(artist.get_gid()) for artist in artists]
    try:
        yield {gid: int(gid.removeprefix(LAYER).split("-")[0]) for gid in gids}
    finally:
        for artist in hidden:
            artist.set_visible(False)


def with_layers(svg: Markup, prefix: str, found: Mapping[str, int]) -> Markup:
    """A drawing of :func:`all_layers` behind the slider that chooses one; the drawing itself if there is no choice.

    ``prefix``: the ids in the drawing begin with it and a hyphen. ``found``: the step of each layer, by its gid.
    """
    steps = sorted({*found.values()})
    if len(steps) < 2:
        return svg
    for gid, step in found.items():
        name = f'id="{prefix}-{gid}"'
        hidden = "" if step == steps[-1] else ' display="none"'
        svg = svg.replace(Markup(name), Markup(f'{name} data-at="{steps.index(step)}"{hidden}'), 1)
    return slider(steps) + svg


def with_slider(svg: Markup, prefix: str, given: OverSteps) -> Markup:
    """A drawing whose parts the slider in front of it changes.

    ``prefix``: the ids in the drawing begin with it and a hyphen.
    """
    for gid, shares in given.shares.items():
        name = f'id="{prefix}-{gid}"'
        svg = svg.replace(Markup(name), Markup(f"{name} {slider_attributes(shares)}"), 1)
    return slider(given.steps) + svg
