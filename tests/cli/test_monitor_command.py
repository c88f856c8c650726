"""``attsvm monitor``: the numbers of its files, the page, and what is not a record."""

import csv
import json
import re
import sys
import urllib.parse

import numpy as np
import pytest

from attsvm import ProblemError
from attsvm.pages import read_records
from oracles.pages import loads

pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")

HEADS = [f"{layer}.{head}" for layer in range(2) for head in range(11)]


@pytest.fixture
def run(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: command("monitor", *arguments)


def write(log, heads):
    """Three records, margins in the first and the last, to a CSV file or a SummaryWriter; returns what was written."""
    generator = np.random.default_rng(0)
    names = ("largest_logit", "entropy", "margin_lower", "margin_upper")
    written = {name: np.full((3, len(heads)), np.nan) for name in names}
    for step in (0, 50, 100):
        record = {name: generator.uniform(0.5, 2, len(heads)) for name in ("largest_logit", "entropy")}
        if step != 50:
            record["margin_lower"] = generator.uniform(0, 0.1, len(heads))
            record["margin_upper"] = record["margin_lower"] + 0.01
        if step == 100:
            record["entropy"][[0, -1]] = 0.01, np.nan
        for name, values in record.items():
            written[name][step // 50] = values
    rows = [
        (step, head, name, float(value))
        for name, values in written.items()
        for step, of_step in zip((0, 50, 100), values, strict=True)
        for head, value in zip(heads, of_step, strict=True)
        if np.isfinite(value)
    ]
    if hasattr(log, "add_scalar"):
        for step, head, name, value in rows:
            log.add_scalar(f"{name}/{head}", value, step)
    else:
        with log.open("w", newline="") as file:
            csv.writer(file).writerows([("step", "head", "measure", "value"), *rows])
    return written


def test_a_record_is_read_as_it_was_written(run, tmp_path):
    path = tmp_path / "heads.csv"
    written = write(path, HEADS)
    found = read_records(path)
    assert found.heads == HEADS
    np.testing.assert_array_equal(found.steps, [0, 50, 100])
    assert found.values.keys() == written.keys()
    for name, values in written.items():
        np.testing.assert_array_equal(found.values[name], values)
    status, out, err = run(path.name, "--json")
    assert status == 0, err
    result = json.loads(out)
    assert result["measures"]["entropy"][2][-1] is None
    assert result["measures"]["margin_upper"][1] == [None] * len(HEADS)
    np.testing.assert_array_equal(result["measures"]["largest_logit"], written["largest_logit"])


def test_event_files_of_tensorboard_are_read_with_what_a_restart_wrote_again(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    for _ in range(2):  # before and after a restart
        writer = SummaryWriter(str(tmp_path / "runs"))
        written = write(writer, HEADS)
        writer.add_scalar("loss/train", 1.0, 0)
        writer.close()
    found = read_records(tmp_path / "runs")
    assert found.heads == HEADS
    np.testing.assert_array_equal(found.steps, [0, 50, 100])
    assert found.values.keys() == written.keys()
    for name, values in written.items():
        np.testing.assert_array_equal(found.values[name], values.astype(np.float32))
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ProblemError, match=r"reading event files needs tensorboard: pip install 'attsvm\[papers\]'"):
        read_records(tmp_path / "runs")


def csv_of(html, name):
    """The rows of the CSV file that the page links below a figure."""
    href = re.search(rf'download="{name}\.csv" href="data:text/csv;charset=utf-8,([^"]*)"', html)[1]
    return list(csv.reader(urllib.parse.unquote(href).splitlines()[1:]))


@pytest.mark.parametrize("heads", [HEADS, HEADS[:3]], ids=["many", "few"])
def test_the_page_has_every_measure_with_its_numbers(run, tmp_path, heads):
    written = write(tmp_path / "heads.csv", heads)
    status, out, err = run("heads.csv", "--out", "page")
    assert status == 0, err
    html = (tmp_path / "page" / "index.html").read_text()
    assert loads(html) == []
    assert "could not be drawn" not in html
    assert "head 0.0 has an entropy below 0.1" in " ".join(out.split())
    for name in ("largest_logit", "entropy", "margin"):
        assert f'href="#figure-{name}"' in html
        assert f'id="figure-{name}"' in html
    curves = csv_of(html, "largest_logit")
    values = written["largest_logit"]
    named = {series: [] for _, series, *_ in curves if series.startswith("head ")}
    assert len(named) == (3 if len(heads) == 3 else 6)
    for _, series, _, y, _ in curves:
        if series in named:
            named[series].append(float(y))
    for series, points in named.items():
        np.testing.assert_array_equal(points, values[:, heads.index(series.removeprefix("head "))])
    if len(heads) == 3:
        edges = [
            (series, float(y)) for _, series, _, y, _ in csv_of(html, "margin") if "interval of head 0.1" in series
        ]
        lower, upper = ({y for series, y in edges if series.endswith(f"edge {k}")} for k in (1, 2))
        assert {*lower, *upper} == {
            *written["margin_lower"][[0, 2], 1],
            *written["margin_upper"][[0, 2], 1],
        }
        assert "_map" not in html
    else:
        cells = {(float(step), head): float(value) for *_, step, head, value in csv_of(html, "largest_logit_map")}
        assert cells == {(s, h): values[i, j] for i, s in enumerate((0, 50, 100)) for j, h in enumerate(heads)}


def test_an_unfinished_line_of_a_running_training_is_left_out(tmp_path):
    (tmp_path / "heads.csv").write_text("step,head,measure,value\n0,0.0,entropy,1.5\n100,0.0,entr")
    assert read_records(tmp_path / "heads.csv").steps.tolist() == [0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "not written by an AttentionMonitor .the first line is not step,head,measure,value"),
        ("step,head,measure,value\n", "expected at least one record, got none"),
        ("step,head,measure,value\n0,0.0,entropy\n", "line 2 has 3 values"),
        ("step,head,measure,value\n0,0.0,entropy,inf\n", "line 2 has the value inf"),
        ("step,head,measure,value\n0,first,entropy,1\n", "invalid literal"),
    ],
)
def test_other_files_are_refused(tmp_path, text, words):
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(ProblemError, match=words):
        read_records(tmp_path / "other.csv")
    with pytest.raises(ProblemError, match="expected a file, got a folder"):
        read_records(tmp_path)
