"""The report of `make paper`."""

import importlib.util
import shutil
from pathlib import Path

import pytest

pytest.importorskip("typst", reason="typst, which makes the PDF, is not installed")

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("build_report", ROOT / "docs" / "paper" / "build.py")
assert spec is not None
assert spec.loader is not None
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)


def test_it_is_built_from_the_results_in_the_repository(tmp_path):
    report.build(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_result_that_was_not_measured_is_refused(tmp_path, monkeypatch):
    results = shutil.copytree(report.RESULTS, tmp_path / "results")
    monkeypatch.setattr(report, "RESULTS", results)
    assert report.changed() == []
    measured = results / "rank.json"
    measured.write_text(measured.read_text(encoding="utf-8").replace("holds in part", "holds"), encoding="utf-8")
    (results / "limit.svg").unlink()
    with pytest.raises(SystemExit, match=r"limit\.svg, rank\.json; measure them again: make paper FRESH=1"):
        report.build(tmp_path / "report.pdf")
    assert not (tmp_path / "report.pdf").exists()
