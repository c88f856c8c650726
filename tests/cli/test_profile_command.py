"""``attsvm profile``, end to end."""

import json
import sys

import pytest

from attsvm import MarginProfile
from attsvm.cli.main import main

pytest.importorskip("torch")


def test_the_folder_is_complete_and_json_is_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--norm", "frobenius", "--norm", "linf", "--seeds", "4", "--steps", "300", "--json"]
    options += ["--batch-size", "2", "--out", "out"]
    monkeypatch.setattr(sys, "argv", ["attsvm", "profile", "torch.optim.SGD", "--learning-rate", "0.1", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "result.json").read_text())
    profile = MarginProfile.load(tmp_path / "out" / "profile.npz")
    assert printed["verdict"] == profile.verdict
    assert printed["mean_ratios"] == profile.mean.tolist()
    assert (profile.ratios.shape[1], profile.steps, printed["batch_size"]) == (4, 300, 2)
    assert printed["steps_made"] == list(profile.steps_made)
    page = (tmp_path / "out" / "index.html").read_text()
    assert profile.reason in page
    assert "mini-batches of 2" in page
    assert "<svg" in page
    assert (tmp_path / "out" / "figures" / "ratios.png").stat().st_size > 1000
