"""A slider over the steps of training: it changes how strongly parts of a figure or a table are shown.

Without the script of the page the last step is shown.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup


class OverSteps(NamedTuple):
    """How strongly parts of a figure are shown at recorded steps.

    Attributes
    ----------
    steps : sequence of int
        The figure shows the last one.
    shares : mapping of str to sequence of float
        By the gid of an artist of matplotlib, its opacity at each of the steps.
    """

    steps: Sequence[int]
    shares: Mapping[str, Sequence[float]]


def over(shares: Sequence[float], said: Sequence[str] = ()) -> Markup:
    """The attributes of an element that the slider changes: an opacity in a drawing, the shade of a cell or a word.

    Parameters
    ----------
    shares : sequence of float
        One for each step.
    said : sequence of str, optional
        The number in the element's title at each step; by default the share.

    Examples
    --------
    >>> from attsvm.report.over_steps import over
    >>> print(over([0.25, 1.0]))
    data-over=".25 1"
    """
    told = Markup(f' data-said="{" ".join(said)}"') if said else ""
    written = " ".join(f"{share:.3g}".removeprefix("0" * (0 < share < 1)) for share in shares)
    return Markup(f'data-over="{written}"') + told


def slider(steps: Sequence[int]) -> Markup:
    """The slider of the figure or section that it stands in; hidden without the script of the page.

    Examples
    --------
    >>> from attsvm.report.over_steps import slider
    >>> "data-steps" in slider([0, 10, 100])
    True
    """
    last = len(steps) - 1
    numbers = json.dumps([int(step) for step in steps])
    return Markup(
        f'<p class="over-steps" hidden><label>Step <input type="range" min="0" max="{last}" value="{last}" '
        f'data-steps="{numbers}"></label> <output>{steps[last]:,}</output></p>'
    )


def with_slider(svg: Markup, prefix: str, given: OverSteps) -> Markup:
    """A drawing whose parts the slider in front of it changes.

    Parameters
    ----------
    svg : Markup
    prefix : str
        The ids in the drawing begin with it and a hyphen.
    given : OverSteps
    """
    for gid, shares in given.shares.items():
        name = f'id="{prefix}-{gid}"'
        svg = svg.replace(Markup(name), Markup(f"{name} {over(shares)}"), 1)
    return slider(given.steps) + svg
