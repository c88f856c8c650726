"""The service of docs/guide/deploy.md answers requests, and says what is wrong with one."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import attsvm

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "deploy.md"


def test_the_service_predicts_and_names_what_does_not_fit(tmp_path, monkeypatch):
    testclient = pytest.importorskip("fastapi.testclient", reason="FastAPI (extra `dev`) is not installed")
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"bag": np.repeat([f"b{i}" for i in range(40)], 3), "mass": generator.normal(70, 10, 120)})
    table["site"] = generator.choice(["left", "right"], 120)
    labels = pd.Series(np.arange(40) % 2, index=table.bag.unique())
    model = attsvm.AttentionClassifier(max_steps=25, random_state=0).fit(table, labels, bag="bag")
    model.save("model.npz")
    (code,) = re.findall(r"```py\n(import pandas.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 15
    service: dict = {"__name__": "service"}
    exec(compile(code, str(PAGE), "exec"), service)
    client = testclient.TestClient(service["app"])
    rows = table.head(6).to_dict("records")
    answer = client.post("/predict", json=rows)
    assert answer.status_code == 200, answer.text
    expected = model.predict_proba(table.head(6))
    assert answer.json() == {
        bag: {str(c): p for c, p in of_bag.items()} for bag, of_bag in expected.T.to_dict().items()
    }
    numbered = [{**row, "bag": 7, "site": None} for row in rows[:3]]  # a number as the name, and a missing word
    assert [*client.post("/predict", json=numbered).json()] == ["7"]
    missing = client.post("/predict", json=[{**rows[0], "mass": None}])
    assert missing.json()["detail"].startswith(
        "X: expected finite numbers, got NaN in row 0 of sequence b0, column mass"
    )
    assert client.post("/predict", json=[]).json() == {"detail": "X: expected at least one row, got none"}
    refused = client.post("/predict", json=table.head(6).rename(columns={"mass": "weight"}).to_dict("records"))
    assert refused.status_code == 422
    assert refused.json() == {
        "detail": "X: expected the columns of the fit, got a table with missing mass and unknown weight"
    }
