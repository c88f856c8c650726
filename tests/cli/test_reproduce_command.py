"""``attsvm reproduce``, end to end."""

import json

from typer.testing import CliRunner

from attsvm.cli.app import app
from attsvm.papers import FIGURES
from oracles.pages import loads
from oracles.schemas import check_result


def test_writes_figure_numbers_and_page_and_goes_on_where_it_was(tmp_path):
    out = tmp_path / "papers"
    command = ["reproduce", "feasibility", "--quick", "--out", str(out)]
    first, again = (CliRunner().invoke(app, command) for _ in range(2))
    assert first.exit_code == again.exit_code == 0, first.output
    assert {path.name for path in out.iterdir()} == {
        "pieces",
        "index.html",
        "feasibility.png",
        "feasibility.svg",
        "feasibility.json",
    }
    numbers = json.loads((out / "feasibility.json").read_text())
    assert numbers["verdict"] == "quick: criterion met"
    assert numbers["pieces_reused"] == numbers["pieces"] > 0
    assert numbers["device"] == "cpu"
    html = (out / "index.html").read_text()
    assert numbers["why"] in html
    assert numbers["criterion"] in html
    assert "<svg" in html
    assert loads(html) == []


def test_a_device_that_does_not_exist_is_refused_before_anything_is_measured(tmp_path):
    refused = CliRunner().invoke(app, ["reproduce", "all", "--device", "cuda", "--out", str(tmp_path / "papers")])
    assert "device: expected one of those available here, 'cpu', got 'cuda'" in str(refused.exception)
    assert not (tmp_path / "papers").exists()


def test_names_what_there_is():
    listed = CliRunner().invoke(app, ["reproduce", "--list"], env={"COLUMNS": "200"}).output
    assert all(name in listed for name in FIGURES.names())
    as_json = json.loads(CliRunner().invoke(app, ["reproduce", "--list", "--json"]).output)
    check_result(as_json)
    assert {figure["name"] for figure in as_json["figures"]} == set(FIGURES.names())
