"""``attsvm profile``, end to end."""

import json

import pytest

from attsvm import MarginProfile

pytest.importorskip("torch")


def test_the_folder_is_complete_and_json_is_the_same(tmp_path, command):
    options = ["--norm", "frobenius", "--norm", "linf", "--seeds", 4, "--steps", 300, "--batch-size", 2]
    out = tmp_path / "out"
    code, printed, _ = command("profile", "torch.optim.SGD", "--learning-rate", 0.1, *options, "--out", out, "--json")
    assert code == 0
    printed = json.loads(printed)
    assert printed == json.loads((out / "result.json").read_text())
    profile = MarginProfile.load(out / "profile.npz")
    assert printed["verdict"] == profile.verdict
    assert printed["mean_ratios"] == profile.mean.tolist()
    assert (profile.ratios.shape[1], profile.steps, printed["batch_size"]) == (4, 300, 2)
    assert printed["steps_made"] == list(profile.steps_made)
    page = (out / "index.html").read_text()
    assert profile.reason in page
    assert "mini-batches of 2" in page
    assert "<svg" in page
    assert (out / "figures" / "ratios.png").stat().st_size > 1000


def test_the_catalogue_is_printed_and_takes_no_optimizer(command):
    code, printed, _ = command("profile", "--catalogue")
    assert code == 0
    heading, first, *_ = printed.splitlines()
    assert heading.startswith("optimizer ")
    assert first.startswith("torch.optim.SGD ")
    assert first.index("frobenius") == heading.index("norm")
    # a part of the optimizers is not taken for all of them
    assert "Measured so far: " in printed
    code, printed, _ = command("profile", "--catalogue", "--json")
    assert (code, json.loads(printed)["entries"][0]["verdict"]) == (0, "frobenius")
    code, printed, _ = command("profile", "--catalogue", "adamw")
    assert code == 0
    first, reason, *_ = printed.splitlines()
    assert first.split()[:4] == ["torch.optim.AdamW", "W,", "no", "decay"]
    assert reason.startswith("    mean margin ratio ")
    assert {line.split()[0] for line in printed.splitlines() if line[0] != " "} == {"torch.optim.AdamW", "optax.adamw"}
    code, printed, _ = command("profile", "--catalogue", "adamw", "--json")
    assert {entry["optimizer"] for entry in json.loads(printed)["entries"]} == {"torch.optim.AdamW", "optax.adamw"}
    alone = "--catalogue: expected no argument or the name of an optimiser, and no option except --json"
    others = [
        (["--catalogue", *other], alone) for other in (["optax.sgd", "--seeds", 3], ["--seeds", 3], ["--steps", 9])
    ]
    others.append((["--catalogue", "adamx"], "did you mean adamax?"))
    others.append((["--catalogue", "SpectralDescent"], "run `attsvm profile attsvm.torch.SpectralDescent`"))
    for given, said in ([], "OPTIMIZER: "), *others:
        code, _, errors = command("profile", *given)
        assert code != 0
        assert said in errors


def test_values_of_option_are_read_as_the_optimizer_declares_them(command):
    few = ["--seeds", 1, "--steps", 30, "--learning-rate", 0.1, "--json"]
    for name, *values in (
        ("torch.optim.Adam", "betas=0.8,0.9", "foreach=none"),
        ("attsvm.torch.SpectralDescent", "iterations=5", "dtype=bfloat16", "coefficients=2,-1.5,0.5", "foreach=none"),
    ):
        given = [part for value in values for part in ("--option", value)]
        code, _, errors = command("profile", name, *given, *few)
        assert code == 0, errors
    for value, said in (("iterations=2.5", "iterations: expected"), ("iteration=5", "did you mean iterations?")):
        code, _, errors = command("profile", "attsvm.torch.SpectralDescent", "--option", value, *few)
        assert code != 0
        assert said in errors
