"""The page of a sweep: its table and hovers against SciPy, the order of axes, and what is missing or failed."""

import csv
import io
import json
import re
from html import unescape
from urllib.parse import unquote

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binomtest

import attsvm
from attsvm.pages import make_page, summarize
from attsvm.pages.sweep import notes, table_csv
from attsvm.pages.sweep_figures import map_axes
from oracles.pages import loads, said

TRIALS = 20
ERROR = "ValueError: <tokens> are not finite"


def store(axes, finished=TRIALS, errors=()):
    """A sweep in the format of ``attsvm.sweeps.store``; of its second cell only ``finished`` trials are done."""
    generator = np.random.default_rng(0)
    shape, dims = tuple(map(len, axes.values())), (*axes, "trial")
    done = np.ones((*shape, TRIALS), dtype=bool)
    done.reshape(-1, TRIALS)[1:2, finished:] = False
    kind = generator.integers(0, 3, size=done.shape).astype("int8")
    loss = 10.0 ** generator.uniform(-6, 0, size=done.shape)
    ratio = generator.random((*done.shape, 2))
    ratio[..., :3, 1] = np.nan  # undefined, although the trial is done
    arrays = {
        "feasible": (dims, np.where(done, kind > 0, -1).astype("int8"), {"flag_meanings": "no yes", "missing": -1}),
        "kind": (
            dims,
            np.where(done, kind, -1).astype("int8"),
            {"flag_meanings": "global local not_local undecided", "missing": -1, "long_name": "kind of convergence"},
        ),
        "loss": (dims, np.where(done, loss, np.nan), {"long_name": "training loss"}),
        "margin_ratio": ((*dims, "measured_norm"), ratio, {"long_name": "margin ratio"}),
        "steps": (dims, np.where(done, 100 * kind.astype("int32"), -1), {"missing": -1, "units": "steps"}),
        # by definition that of some trials alone, as of infeasible ones
        "bound": (dims, np.where(kind > 0, np.nan, loss), {"partial": True}),
        "done": (dims, done),
    }
    attributes = {"name": "mine", "version": "1", "command": "attsvm sweep <mine>", "seed": 7, "hash": "abc"}
    coordinates = {**axes, "measured_norm": ["frobenius", "nuclear"]}
    return xr.Dataset(arrays, coordinates, {**attributes, "errors": json.dumps(list(errors))})


def page_of(dataset, *measures):
    """The page of these measures, or of all of them."""
    dataset = dataset[[*measures, "done"]] if measures else dataset
    return make_page(summarize(dataset), command="attsvm sweep show mine").html()


def places_of(page, measure):
    """What appears at the pointer, and where, for each curve or map of a measure."""
    return json.loads(unescape(re.search(rf'download="{measure}.csv"[^>]*data-places="([^"]*)"', page)[1]))


def test_trials_that_are_undecided_or_left_out_are_counted():
    data = store({"dim": [8, 2]}, finished=12)
    data.kind.values[0, :5] = 3
    data.loss.values[0, :4] = [np.inf, -np.inf, np.nan, np.inf]
    data.feasible.values[1, :2] = -1
    summary = summarize(data)
    counted = [line for line in notes(summary) if " of 32 finished trials are " in line]
    assert counted == [
        "feasible: 2 of 32 finished trials are without a value, and left out.",
        "kind of convergence: 5 of 32 finished trials are undecided.",
        "margin ratio, nuclear: 6 of 32 finished trials are without a value, and left out.",
        "training loss: 1 of 32 finished trials are without a value, and left out.",
        "training loss: 3 of 32 finished trials are infinite, and left out.",
    ]
    page = page_of(data)
    assert all(line in page for line in counted)
    [loss] = [one for one in summary.series if one.measure == "loss"]
    assert loss.estimate.value[0] == pytest.approx(data.loss.values[0, 4:].mean(), rel=1e-12)


def test_the_table_is_recomputed_from_the_finished_trials_of_each_cell():
    axes = {"optimizer": ["sign", "adam"], "dim": [8, 2]}
    data = store(axes, finished=12)
    rows = [*csv.DictReader(io.StringIO(table_csv(summarize(data))))]
    # 4 cells with feasible, 3 kinds that occur, the loss, 2 norms, the steps and the bound
    assert len(rows) == 4 * 9
    # numbers ascending, names as given
    assert [*dict.fromkeys((row["optimizer"], row["dim"]) for row in rows)] == [
        ("sign", "2"), ("sign", "8"), ("adam", "2"), ("adam", "8"),
    ]  # fmt: skip
    for row in rows:
        cell = data.sel(optimizer=row["optimizer"], dim=int(row["dim"]))
        done = cell.done.values
        values = cell[row["measure"]]
        if row["measure"] == "margin_ratio":
            values = values.sel(measured_norm=row["of"])
        values = values.values[done]
        got = [float(row[name]) for name in ("estimate", "low", "high")]
        if "flag_meanings" in data[row["measure"]].attrs:
            code = data[row["measure"]].attrs["flag_meanings"].split().index(row["of"].replace(" ", "_") or "yes")
            test = binomtest(int((values == code).sum()), len(values))
            expected = [test.statistic, *test.proportion_ci(method="wilson")]
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
        else:
            values = values[np.isfinite(values)]
            assert got[0] == pytest.approx(values.mean(), rel=1e-14)
            # the standard error, up to the skewness of 12 to 20 values and the noise of 999 resamples
            assert got[2] - got[1] == pytest.approx(2 * 1.96 * values.std() / len(values) ** 0.5, rel=0.2)
        assert int(row["trials"]) == len(values)


def test_a_map_shows_every_cell_with_its_numbers_and_names_what_is_missing():
    error = {"cell": {"num": 4, "dim": 2}, "trials": [12, 20], "attempts": 3, "error": ERROR}
    data = store({"num": [4, 2], "dim": [2, 8, 4]}, finished=12, errors=[error])
    page = page_of(data)
    assert "5 of 6 cells are complete: 112 of 120 trials." in page
    escaped = ERROR.replace("<", "&lt;").replace(">", "&gt;")
    assert f"Failed after 3 attempts: num = 4, dim = 2, trials 12 to 19: {escaped}" in page
    assert "Cells with fewer than 20 finished trials: num = 4, dim = 8 (12)." in page
    [cells] = places_of(page, "feasible")
    found = [
        re.fullmatch(r"num = (\d), dim = (\d): ([\d.]+)% \[([\d.]+)%, ([\d.]+)%\], (\d+) trials(.*)", text).groups()
        for text in cells["texts"]
    ]
    # upwards and to the right
    places = np.array(cells["at"]).reshape(-1, 2)
    from_top_left = [found[k][:2] for k in np.lexsort(places.T)]
    assert from_top_left == [(num, dim) for num in "42" for dim in "248"]
    hovers = found
    assert len(hovers) == 6
    for num, dim, share, low, high, count, rest in hovers:
        cell = data.sel(num=int(num), dim=int(dim))
        test = binomtest(int((cell.feasible == 1).sum()), int(cell.done.sum()))
        expected = [100 * x for x in (test.statistic, *test.proportion_ci(method="wilson"))]
        np.testing.assert_allclose([float(share), float(low), float(high)], expected, atol=0.051)
        assert int(count) == int(cell.done.sum())
        assert rest == ("" if count == "20" else "; 12 of 20 finished")
    assert sum(rest != "" for *_, rest in hovers) == 1
    # the file under the maps of a measure is its part of the table
    linked = unquote(re.findall(r'href="data:text/csv;charset=utf-8,([^"]*)"', page)[0])
    header, *lines = table_csv(summarize(data)).splitlines()
    assert linked.splitlines() == [header, *(line for line in lines if ",feasible," in line)]


def test_further_axes_are_panels_and_one_axis_is_a_curve():
    three = store({"dim": [2, 4], "optimizer": ["sign", "adam"], "num": [1, 3]})
    assert map_axes(summarize(three)) == (0, 2)
    kind = page_of(three, "kind").partition('download="kind.csv"')[0].rpartition("<figure")[2]
    panels = [text for text in re.findall(r"<text[^>]*>([^<]*)<", kind) if "optimizer" in text]
    assert [panel.rpartition(" · ")[2] for panel in panels] == ["optimizer = sign", "optimizer = adam"] * 3
    page = page_of(store({"dim": [16, 2, 4], "num": [1]}, finished=0), "loss")
    [loss] = places_of(page, "loss")
    # dim = 2 has no finished trial; 4 and 16 are shown in their order
    assert [text.partition(":")[0] for text in loss["texts"]] == ["dim = 4", "dim = 16"]
    assert loss["at"][0] < loss["at"][2]
    assert loads(page) == []
    gap = page_of(store({"dim": [1, 2, 4, 8]}, finished=0), "loss")
    drawn = gap.partition('download="loss.csv"')[0].rpartition("<figure")[2]
    lines = re.findall(r'<path d="([^"]*)" clip-path="[^"]*" style="fill: none; stroke: var\(--blue', drawn)
    assert any(line.count("M") == 2 for line in lines), "no line over dim = 2"


ZOOM = """<script>
const say = (text) => { document.body.appendChild(document.createElement("output")).textContent = text; };
const panel = document.querySelector('[id="loss-axes_1"]');
const hover = (mark) => {
  const at = mark.getBoundingClientRect();
  panel.closest("svg").dispatchEvent(
    new PointerEvent("pointermove", { clientX: at.x + at.width / 2, clientY: at.y + at.height / 2 }));
  say(document.querySelector(".tip").hidden ? "nothing" : document.querySelector(".tip").textContent);
};
const marks = [...panel.querySelectorAll("use")].filter((mark) => !mark.closest('[id*="tick"]'));
const box = panel.querySelector("rect.zoom").getBoundingClientRect();
hover(marks[1]);
panel.closest("figure").querySelector(".zooms button").click();
hover(marks[1]);  // it has moved, and so have its numbers
hover(marks[0]);  // it has left the axes
</script></body>"""


def test_curves_are_zoomed_with_their_numbers(tmp_path):
    data = store({"dim": [2, 16, 128]})
    data.loss.values[:] = np.array([1e-6, 1e-3, 1.0])[:, None]
    first, second, third = said(page_of(data, "loss"), ZOOM, tmp_path)
    assert first == second
    assert first.startswith("dim = 16: 0.001")
    assert third == "nothing"


def test_equal_trials_have_no_interval_and_say_so():
    data = store({"dim": [2, 4]})
    data.loss.values[0] = 0.5
    summary = summarize(data)
    [loss] = [one for one in summary.series if one.measure == "loss"]
    assert np.isnan([loss.estimate.low[0], loss.estimate.high[0]]).all()
    texts = [text for curve in places_of(page_of(data, "loss"), "loss") for text in curve["texts"]]
    assert texts[0] == "dim = 2: 0.5, 20 trials, all equal"
    assert sum("all equal" in text for text in texts) == 1


def test_one_cell_is_a_table():
    page = page_of(store({"dim": [3], "num": [2]}))
    assert "Complete: 1 cell, 20 trials in each." in page
    assert '<details class="more" open>' in page


def test_the_command_shows_a_store(tmp_path, command):
    store = tmp_path / "store"
    attsvm.sweep({"dim": [2, 4]}, ["feasible"], fixed={"num_sequences": 3}, store=store, trials=8, workers=0)
    code, out, error = command("sweep", "show", store, "--out", tmp_path / "page", "--json", "--level", "0.9")
    assert code == 0, error
    result = json.loads(out)
    assert result == json.loads((tmp_path / "page" / "result.json").read_text())
    assert result["axes"] == {"dim": [2, 4]}
    assert result["finished_trials"] == [8, 8]
    found = result["estimates"][0]  # the order of the measure's outputs
    assert found["measure"] == "feasible"
    successes = (attsvm.open_sweep(store).feasible == 1).sum("trial").values
    assert found["estimate"] == [*(successes / 8)]
    highs = [binomtest(int(k), 8).proportion_ci(0.9, method="wilson").high for k in successes]
    np.testing.assert_allclose(found["high"], highs, rtol=1e-12)
    assert (tmp_path / "page" / "table.csv").read_text().startswith("dim,measure,of,estimate,low,high,trials\n2,")
    assert "interval (90%)" in (tmp_path / "page" / "index.html").read_text()
    assert command("sweep", "show", store, "--out", tmp_path / "page", "--force")[0] == 0
    assert command("sweep", "show", tmp_path)[0] != 0
    assert command("sweep", "show", store, "--level", "95")[2].endswith("a number in (0, 1), got 95.0\n")
