"""The page of ``attsvm profile``, its figure and its numbers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from attsvm._utils.text import as_label
from attsvm.pages.figure import DrawnFigure, draw_each
from attsvm.pages.page import AnyPart, Card, Cards, Figures, Heading, Page, Table
from attsvm.pages.schemas.problems import ProfileResult
from attsvm.pages.words import number, percent
from attsvm.plot import drawn_matrix
from attsvm.profiles import MarginProfile, written


def profile_page(profile: MarginProfile, **about: Any) -> Page:
    """Make the page of a profile, whose numbers docs/guide/results.md documents.

    ``about``: the command, and the limit on threads.
    """
    numbers = ProfileResult.fill(
        profile,
        **about,
        share_decided=profile.decided.mean(axis=1),
        median_logit_change=np.median(profile.logit_change, axis=1),
    )
    problems = f"{profile.ratios.shape[1]} problems"
    said = "Inconclusive" if profile.norm is None else f"It maximises the margin in the {profile.verdict} norm"
    return Page(
        numbers,
        title=f"Margin profile of {profile.optimizer}",
        kicker=f"{problems} · {profile.attention} attention · {profile.batches} · "
        f"at most {profile.steps:,} steps of each schedule",
        verdict=f"{said}: {profile.reason}",
        body=partial(_body, profile),
        made_by=problems,
        kept=("the profile", "profile.npz"),
        others={"profile.npz": profile.save},
    )


def _body(profile: MarginProfile) -> Iterator[AnyPart]:
    yield Cards(_cards(profile))
    yield Heading("Figure")
    yield Figures(draw_each({"ratios": lambda: _ratios(profile)}), wide=["ratios"], most="40rem")
    yield Heading("Mean margin ratios")
    steps_made = [*profile.steps_made, profile.steps_made[profile.schedules.index(profile.chosen)]]
    rows = [
        (name, f"{steps:,}", *map(written, row)) for steps, (name, row) in zip(steps_made, _rows(profile), strict=False)
    ]
    yield Table(rows, ["", "steps", *profile.norms], kind="ratios")


def _rows(profile: MarginProfile) -> list[tuple[str, np.ndarray]]:
    rows = list(zip(profile.schedules, profile.mean, strict=True))
    raw = profile.raw_ratios
    return rows if raw is None else [*rows, (f"{profile.chosen}, gradient not normalised", raw.mean(axis=0))]


def _cards(profile: MarginProfile) -> list[Card]:
    place = profile.schedules.index(profile.chosen)
    mean = profile.mean[place]
    first, second = np.argsort(mean)[::-1][:2] if len(mean) > 1 else (0, 0)
    return [
        Card("Largest margin ratio", written(mean[first]), f"{profile.norms[first]} norm, {profile.chosen} steps"),
        Card("Second largest", written(mean[second]), f"{profile.norms[second]} norm, same steps"),
        Card("Saturated", percent(profile.decided[place].mean()), "of the problems: each query keeps one token"),
        Card(
            "Change of a logit",
            number(float(np.median(profile.logit_change[place]))),
            "in a late step of the median problem; long steps change the limit",
        ),
    ]


def _ratios(profile: MarginProfile) -> DrawnFigure:
    names, mean = zip(*_rows(profile), strict=True)
    short = [name.replace(", gradient not normalised", ", raw") for name in names]
    own = [int(row.argmax()) for row in mean]
    claimed = [name == profile.chosen and profile.norm is not None for name in names]
    return DrawnFigure(
        "Margin ratios",
        "The margin divided by the best margin of any weights with the same norm, as a mean over the problems. The "
        "largest ratio of each row is framed, with a solid line in the row that gives the verdict. raw: the gradient "
        "is not divided by its norm.",
        drawn_matrix(short, [*map(as_label, profile.norms)], np.array(mean), own, claimed),
    )
