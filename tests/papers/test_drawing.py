"""Drawings of the papers' figures."""

import re

import numpy as np
from matplotlib.figure import Figure

from attsvm.pages.figure import svg_element
from attsvm.papers.drawing import draw_rings, ring_steps
from attsvm.plot import DATA


def test_rings_are_where_the_paths_are_at_the_step_of_the_slider():
    generator = np.random.default_rng(0)
    long, short = np.array([0, 1, 2, 3, 5, 8, 13]), np.array([0, 2, 6])
    paths = [(steps, generator.standard_normal((len(steps), 2))) for steps in (long, short)]
    figure = Figure(figsize=(3, 2))
    axis = figure.subplots(subplot_kw=DATA)
    for _, points in paths:
        axis.plot(*points.T)
    draw_rings(axis, paths, ring_steps(long))
    page = svg_element(figure, "paths", "Paths")
    assert 'data-steps="[0, 1, 2, 5, 8, 13]"' in page
    found = re.findall(r'<g id="paths-step-(\d+)-0" data-at="(\d)"( display="none")?>(.*?)</g></g>', page)
    assert [(int(step), int(k)) for step, k, *_ in found] == [(0, 0), (1, 1), (2, 2), (5, 3), (8, 4), (13, 5)]
    assert [bool(hidden) for *_, hidden, _ in found] == [True] * 5 + [False]
    # the short path has no record at step 1, nor at a step after its last one
    at = {0: (0, 0), 1: (1, 0), 2: (2, 1), 5: (4, 1), 8: (5, 2), 13: (6, 2)}
    for step, *_, marks in found:
        places = [points[row] for (_, points), row in zip(paths, at[int(step)], strict=True)]
        expected = (np.array([0, figure.bbox.height]) + axis.transData.transform(places) * [1, -1]) * 72 / figure.dpi
        uses = np.array(re.findall(r'<use [^>]*x="([-\d.]+)" y="([-\d.]+)"', marks), dtype=float)
        assert np.allclose(uses, expected, atol=0.006)
    # the data are those of the paths, and a print shows the rings of the last step
    assert [one.points.tolist() for one in axis.series] == [points.tolist() for _, points in paths]
    assert [line.get_visible() for line in axis.lines[2:]] == [False] * 5 + [True]
