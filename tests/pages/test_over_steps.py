"""Sliders over the steps of training."""

import csv
import io
import re
import urllib.parse
from dataclasses import replace

import numpy as np
import pytest

from attsvm import Problem, fit
from attsvm.datasets import find_source
from attsvm.measures import attention_of
from attsvm.pages import make_page
from attsvm.training import recorded_attention
from oracles.pages import said

# moves each slider to the step before last, and writes what is shown
MOVE = """<script>
for (const input of document.querySelectorAll("p.over-steps input")) {
  input.value = input.max - 1; input.dispatchEvent(new Event("input"));
  const part = input.closest("p").parentElement.querySelector("[data-over]");
  const said = part.tagName === "TD" ? part.style.getPropertyValue("--a") + part.title.split(":")[1]
    : part.firstElementChild.style.opacity;
  document.body.append(Object.assign(document.createElement("output"), { textContent: said }));
}
</script></body>"""


def written(problem, folder, source=None, **options):
    done = fit(problem, steps=30, **options)
    done = replace(done, source=source)
    make_page(done, command="attsvm fit").write(folder)
    return done, (folder / "index.html").read_text()


def masked_problem():
    generator = np.random.default_rng(3)
    tokens = generator.standard_normal((20, 5, 3))
    mask = generator.random((20, 5)) < 0.7
    mask[:, 0] = True
    return Problem(tokens, labels=np.where(np.arange(20) % 2, 1.0, -1.0), mask=mask)


def test_the_slider_has_the_attention_of_the_records(tmp_path):
    done, page = written(masked_problem(), tmp_path)
    rows = np.arange(done.test.num_sequences)
    steps, attention = recorded_attention(done.run, done.test, rows)
    assert steps.tolist() == [0, 1, 2, 4, 8, 16, done.run.step]
    assert np.array_equal(attention[-1], done.on_test.attention)
    first = attention_of(done.test, np.zeros(3))
    assert np.array_equal(attention[0], first)
    # a masked token has no cell; the others have theirs at every step, to the digits that are written
    cells = np.array([[float(x) for x in found.split()] for found in re.findall(r'data-over="(.*?)"', page)])
    shown = np.moveaxis(attention[:, :12, 0], 0, -1)[done.test.mask[:12]]
    assert np.allclose(cells, shown, rtol=5.1e-3, atol=0)


def test_the_data_of_pictures_are_the_attention_on_their_tokens(tmp_path):
    source = find_source("digits", {"train": "60", "test": "20"})
    done, page = written(source.drawing(0, 0.25), tmp_path, source)
    table = urllib.parse.unquote(re.search(r'download="picks.csv" href="data:text/csv;charset=utf-8,(.*?)"', page)[1])
    rows = list(csv.DictReader(io.StringIO(table)))
    shares = np.array([float(row["value"]) for row in rows]).reshape(-1, 9)
    attention, right = done.on_test.attention[:, 0], done.right["test"]
    shown = np.concatenate([np.flatnonzero(right)[:10], np.flatnonzero(~right)[:10]])
    assert np.array_equal(shares, attention[shown])
    assert {row["series"] for row in rows} == {"attention"}


@pytest.mark.parametrize("kind", ["table", "pictures"])
def test_a_browser_moves_the_sliders(tmp_path, kind):
    source = find_source("digits", {"train": "60", "test": "20"}) if kind == "pictures" else None
    _, page = written(source.drawing(0, 0.25) if source else masked_problem(), tmp_path, source)
    *_, shown = said(page, MOVE, tmp_path)  # after the numbers of the steps
    share = float(re.search(r'data-over="(.*?)"', page)[1].split()[-2])
    assert shown == (f"{share:g} {share:.3f}" if kind == "table" else f"{share:g}")
