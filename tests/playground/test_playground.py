"""The page of ``attsvm playground``: one small file, whose numbers are the library's."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import attsvm
from attsvm.cli.main import main
from attsvm.errors import ProblemError
from attsvm.playground import page

CASES = Path(__file__).parents[2] / "playground" / "tests" / "cases.json"


def test_the_page_is_one_small_file_that_loads_nothing():
    text = page()
    assert len(text.encode()) < 500_000
    assert not re.findall(
        r"""(?:src|@import|url\()\s*=?\s*["'](?!#)[^"']+""", re.sub(r"<script.*?</script>", "", text, flags=re.S)
    )
    assert "<link" not in text


def test_the_command_writes_the_page(tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", ["attsvm", "playground", "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert out.read_text(encoding="utf-8") == page()


def test_the_answers_that_the_page_is_tested_with_are_those_of_the_library():
    cases = json.loads(CASES.read_text(encoding="utf-8"))["svm"]
    assert len(cases) >= 20
    for case in cases:
        problem = attsvm.Problem(**case["problem"])
        solution = attsvm.solve_svm(problem, case["selected"], norm=case["norm"], tol=1e-11)
        assert (solution.status == "infeasible") == (case["status"] == "infeasible")
        if case["value"] is not None:
            # two answers whose gaps are below 1e-11
            np.testing.assert_allclose(solution.value, case["value"], rtol=2e-11)


def test_a_problem_is_read_from_json(tmp_path):
    path = tmp_path / "scene.json"
    scene = {"tokens": [[[1.0, 2.0], [0.5, -1.0]]], "labels": [-1], "head": [1, 0], "mask": [[True, False]]}
    path.write_text(json.dumps({"kind": "problem", **scene, "playground": {"name": "any"}}))
    expected = attsvm.Problem(**scene)
    assert attsvm.Problem.load(path).data_hash == expected.data_hash


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"kind": "run"}', "expected the kind 'problem'"),
        ('{"tokens": [[[1, 2], [3]]]}', "tokens: expected nested lists of equal lengths, got different"),
        ('{"tokens": [[["a", "b"]]]}', "tokens: expected nested lists of numbers, got text"),
        ('{"tokens": [[[1, 2]]], "colour": 1}', "expected arrays named"),
        ('{"tokens": [[[1, 2]]', "not a readable JSON object"),
        ('{"labels": [1]}', "expected an array 'tokens'"),
    ],
)
def test_damaged_json_is_one_error(tmp_path, content, said):
    path = tmp_path / "scene.json"
    path.write_text(content)
    with pytest.raises(ProblemError, match=said):
        attsvm.Problem.load(path)
