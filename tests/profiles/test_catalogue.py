"""The catalogue of optimizers: what is listed, how it is measured, and what its data file says."""

import importlib.util
import inspect
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import attsvm
from attsvm import optimizers
from attsvm.errors import ProblemError
from attsvm.profiles.entries import NOT_RUN, Catalogue, Entry
from attsvm.profiles.named import import_optimizer, stepped
from attsvm.profiles.of_torch import OfTorch
from attsvm.profiles.verdict import NO_LIMIT, NONE_OF_THESE, written
from attsvm.theory import Found, table

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "measure_catalogue.py"
spec = importlib.util.spec_from_file_location("measure_catalogue", SCRIPT)
assert spec is not None
assert spec.loader is not None
script = importlib.util.module_from_spec(spec)
sys.modules["measure_catalogue"] = script  # dataclasses look for it there
spec.loader.exec_module(script)
SETTINGS, Installed = script.SETTINGS, script.Installed
installed_optimizers, measure_catalogue = script.installed_optimizers, script.measure_catalogue

NORMS = ("l1", "frobenius", "linf")


def test_every_optimizer_of_the_packages_is_listed_once():
    listed = installed_optimizers()
    assert max(Counter(one.name for one in listed).values()) == 1
    found = {id(import_optimizer(one.path)) for one in listed}
    for name in torch.optim.__all__:
        kind = getattr(torch.optim, name)
        if inspect.isclass(kind) and kind is not torch.optim.Optimizer:
            assert id(kind) in found, name
    paths = {one.path for one in listed}
    assert {"optax.adam", "optax.contrib.muon", "optax.contrib.prodigy"} < paths
    assert not any("scale_by" in path for path in paths)
    assert {one.path for one in listed if one.variant} == set(script.VARIANTS)
    # the best known come first
    assert listed[0].path.endswith("SGD")


def test_every_name_of_pytorch_optimizer_is_listed():
    package = pytest.importorskip("pytorch_optimizer", reason="pytorch-optimizer is not installed")
    found = {id(import_optimizer(one.path)) for one in installed_optimizers()}
    assert not [name for name in package.get_supported_optimizers() if id(package.load_optimizer(name)) not in found]


@pytest.mark.parametrize("name", ["Muon", "MuonClip", "AdaMuon"])
def test_classes_that_ask_for_groups_of_parameters_get_them(name):
    pytest.importorskip("pytorch_optimizer", reason="pytorch-optimizer is not installed")
    one = Installed(f"pytorch_optimizer.{name}").make()
    moved = stepped(one, None).idle_step({"W": np.ones((3, 4))})
    assert moved["W"].shape == (3, 4)


def test_weight_decay_is_switched_off():
    one = next(one for one in installed_optimizers() if one.path == "torch.optim.AdamW")
    assert one.decay == {"weight_decay": 0.01}
    shape = {"W": (10, 10)}
    assert stepped(torch.optim.AdamW, None).decays_weights(shape)
    assert not stepped(one.make(), None).decays_weights(shape)
    # a flag is no amount
    assert all(not one.decay for one in installed_optimizers() if one.path == "optax.lars")


class OfMatrices(torch.optim.SGD):
    """One norm for each tensor."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= group["lr"] * p.grad / p.grad.norm()


class OfAll(torch.optim.SGD):
    """One norm for all tensors."""

    def step(self, closure=None):
        for group in self.param_groups:
            size = torch.stack([p.grad.norm() for p in group["params"]]).norm()
            for p in group["params"]:
                p.data -= group["lr"] * p.grad / size


class OfRowsLater(torch.optim.SGD):
    """Keeps a matrix that it does not use before step 1000."""

    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["statistics"] = p.grad @ p.grad.mT
                p.data -= group["lr"] * p.grad


@pytest.mark.parametrize(
    ("make", "layout"),
    [
        (torch.optim.Adam, "stacked"),
        (lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), "stacked"),
        (OfMatrices, "together"),
        (OfRowsLater, "together"),
        (OfAll, "alone"),
    ],
)
def test_problems_share_a_tensor_only_if_entries_are_independent(make, layout):
    start = {"W": np.random.default_rng(0).standard_normal((4, 5, 6))}
    assert OfTorch(make, "one")._layout(start) == layout


@pytest.mark.parametrize("attention", [None, "factored"])
def test_the_learning_rate_is_found_from_the_change_of_a_logit(attention):
    found = [
        attsvm.margin_profile(
            lambda ps, rate=rate: torch.optim.SGD(ps, lr=rate), seeds=2, steps=640, norms=NORMS, attention=attention
        )
        for rate in (1e-5, 1.0, 1e3)
    ]
    for profile in found:
        steps = profile.steps_made[0]
        wanted = 0.3 * (1 + steps / 1000) ** (-1 / 3)
        # corrections are made halfway, and the change is that of one step
        assert wanted / 2 < np.median(profile.logit_change[0]) < 2 * wanted
        assert profile.verdict == found[0].verdict
        np.testing.assert_allclose(profile.ratios[0], found[0].ratios[0], atol=0.05)
    # the rate of the first steps is the same one, up to the factor 4 within which it is searched
    rates = [profile.learning_rate for profile in found]
    assert max(rates) < 4 * min(rates)


@pytest.fixture
def small(monkeypatch):
    settings = {"W": {"norms": NORMS}, "K and Q": {"norms": NORMS, "attention": "factored"}}
    monkeypatch.setattr(script, "SETTINGS", settings)
    return {
        "seeds": 1,
        "steps": 64,
        "optimizers": [Installed("torch.optim.SGD"), Installed("torch.optim.LBFGS"), Installed("optax.sgd")],
    }


def _without_times(path):
    read = json.loads(path.read_text())
    return [{name: x for name, x in each.items() if name != "seconds"} for each in read["entries"]]


def test_a_measurement_continues_where_it_was_interrupted(small, tmp_path):
    whole = list(measure_catalogue(tmp_path / "whole", "command", **small))
    assert list(dict.fromkeys(one.key for one in whole)) == [
        *((each.path, setting) for setting in ("W", "K and Q") for each in small["optimizers"]),
        ("torch.optim.SGD", script.AS_SHIPPED),
    ]
    # the default of PyTorch
    assert whole[-1].learning_rate == 1e-3
    assert {one.verdict for one in whole if one.optimizer == "torch.optim.LBFGS"} == {NOT_RUN}
    assert all("needs a closure" in one.reason for one in whole if one.verdict == NOT_RUN)
    # what more steps can change is measured once more
    again = [(one, later) for one, later in pairwise(whole) if one.key == later.key]
    assert [one.key for one, _ in again] == [one.key for one in whole if one.unfinished and one.steps == 64]
    assert {one.steps for _, one in again if one.unfinished} == {256}
    assert len({one.key for one, _ in again}) == len(again) >= 2
    stored = {one.key: one for one in Catalogue.parse((tmp_path / "whole" / "catalogue.json").read_text()).entries}
    assert stored == {one.key: one for one in whole}
    # nothing is known of other problems
    assert {(one.low, one.high) for one in whole if one.ratio is not None} == {(0.0, 1.0)}

    part = measure_catalogue(tmp_path / "parts", "command", **small)
    assert next(part).unfinished
    part.close()
    assert not list(measure_catalogue(tmp_path / "parts", "command", **small, callback=lambda at: True))
    list(measure_catalogue(tmp_path / "parts", "command", **small))
    ends = [_without_times(tmp_path / name / "catalogue.json") for name in ("parts", "whole")]
    assert ends[0] == ends[1]
    assert not list(measure_catalogue(tmp_path / "parts", "command", **small))
    # entries of other options are not mixed
    with pytest.raises(ProblemError, match="measured by `command`; continue with this command"):
        next(measure_catalogue(tmp_path / "parts", "command --seeds 2", **small))
    (tmp_path / "parts" / "catalogue.json").write_text("{}")
    with pytest.raises(ProblemError, match="catalogue: expected the JSON of a catalogue"):
        list(measure_catalogue(tmp_path / "parts", "command", **small))


def test_entries_of_different_versions_are_not_mixed(small, tmp_path):
    small["optimizers"], store = [Installed("torch.optim.LBFGS")], tmp_path / "catalogue.json"

    def continued(versions, entries):
        store.write_text(Catalogue("command", versions, entries).text())
        measured = list(measure_catalogue(tmp_path, "command", **small))
        return len(measured), Catalogue.parse(store.read_text()).versions

    list(measure_catalogue(tmp_path, "command", **small))
    made = Catalogue.parse(store.read_text())
    said = f"with torch 1.0, and {made.versions['torch']} is installed; install torch 1.0 or choose another folder"
    with pytest.raises(ProblemError, match=re.escape(said)):
        continued({**made.versions, "torch": "1.0"}, made.entries[:1])
    assert Catalogue.parse(store.read_text()).entries == made.entries[:1]
    # a package may come or go
    others = {name: version for name, version in made.versions.items() if name != "torch"} | {"gone": "1.0"}
    assert continued(others, made.entries[:1]) == (1, {**made.versions, "gone": "1.0"})
    assert continued({"torch": "1.0"}, ()) == (2, made.versions)


def test_the_time_limit_ends_an_entry(small, tmp_path):
    small["optimizers"] = [Installed("torch.optim.SGD")]
    entry = next(measure_catalogue(tmp_path / "out", "command", **small, time_limit=1e-9))
    assert (entry.verdict, entry.reason) == ("inconclusive", "the time limit of 1e-09 s ended it.")
    assert (entry.cause, entry.is_unknown) == ("time limit", True)
    with pytest.raises(ProblemError, match="time_limit: expected a positive number of seconds, got 0"):
        next(measure_catalogue(tmp_path / "out", "command", **small, time_limit=0))


@pytest.mark.parametrize(("name", "least"), [("seeds", 1), ("steps", 4)])
def test_bad_options_are_not_taken_for_faults_of_optimizers(small, tmp_path, name, least):
    with pytest.raises(ProblemError, match=f"{name}: expected an integer >= {least}, got 0"):
        next(measure_catalogue(tmp_path / "out", "command", **small | {name: 0}))
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def catalogue():
    return attsvm.profiles.catalogue()


def test_the_data_file_is_a_catalogue(catalogue):
    assert Catalogue.parse(catalogue.text()) == catalogue
    assert max(Counter(one.key for one in catalogue.entries).values()) == 1
    assert {one.setting for one in catalogue.entries} <= {*SETTINGS, script.AS_SHIPPED}
    for one in catalogue.entries:
        assert one.reason
        assert (one.verdict == NOT_RUN) == (one.ratio is None)
        assert (one.verdict == "inconclusive") == bool(one.cause)
        assert not one.cause or one.is_unknown == (one.cause not in (NONE_OF_THESE, *NO_LIMIT))
        if one.cause == NONE_OF_THESE:
            # the reason names the norms and the largest ratio, which is that of the entry
            assert one.reason.startswith(f"{NONE_OF_THESE} (l1, l1.5, ")
            assert f"the largest ratio is {written(one.ratio)[:-1]}" in one.reason
            assert one.ratio < 0.95
        if one.setting == "W, mini-batches of 2" and one.cause:
            assert "With all sequences it is " in one.reason
        assert one.setting != script.AS_SHIPPED or not one.decay
        if one.is_named:
            assert one.norm == one.verdict
            assert one.ratio >= 0.95
            assert one.low <= one.ratio <= one.high
            assert one.ratio - one.second_ratio >= 1.5 * (1 - one.ratio) - 3e-4  # rounded to four digits


@pytest.mark.parametrize("setting", SETTINGS)
def test_of_most_optimizers_the_catalogue_knows_the_limit_or_that_it_is_in_none_of_the_norms(catalogue, setting):
    assert sum(one.is_unknown for one in catalogue.entries if one.setting == setting) <= 90


def test_entries_on_mini_batches_say_what_the_optimizer_does_with_all_sequences():
    setting = "W, mini-batches of 2"
    named = Entry("one", "W", "linf", "why.", norm="linf", ratio=0.968)
    unnamed = Entry("one", "W", "inconclusive", "why.", ratio=0.9, cause="not settled")
    for cause, on_all, said in (
        (NONE_OF_THESE, named, " With all sequences it is the linf norm (0.968): the batches lead it elsewhere."),
        ("not settled", named, " With all sequences it is the linf norm (0.968)."),
        ("not settled", unnamed, " With all sequences it is inconclusive, too (not settled)."),
        ("not settled", None, ""),
    ):
        entry = Entry("one", setting, "inconclusive", "why.", ratio=0.8, cause=cause)
        assert script.beside_all_sequences(entry, on_all).reason == f"why.{said}"
    assert script.beside_all_sequences(named, named) is named
    assert script.beside_all_sequences(unnamed, named) is unnamed


def test_an_entry_is_found_by_its_name(catalogue):
    assert {one.optimizer for one in catalogue.of("optim.sgd")} == {"torch.optim.SGD", "torch.optim.SGD(momentum=0.9)"}
    assert not catalogue.of("GD")
    assert next(iter(catalogue.only("torch.optim.adamw").entries)).trained == "W, no decay"
    with pytest.raises(ProblemError, match=r"^optimizer: expected a name in the catalogue.* did you mean adan\?$"):
        catalogue.only("adan0m")
    with pytest.raises(ProblemError, match=r"^optimizer: expected its name, such as .*, got Catalogue$"):
        catalogue.of(type(catalogue))
    frame = pytest.importorskip("pandas") and catalogue.to_frame()
    assert frame.optimizer.tolist() == [one.optimizer for one in catalogue.entries]
    assert len(str(catalogue).splitlines()) == 1 + len(frame)


STEPS = {
    "sgd": optimizers.normalized_gradient_descent(),
    "sign_sgd": optimizers.steepest_descent(norm="linf"),
    "adam": optimizers.adam(),
    "adamw": optimizers.adam(),  # without its decay
    "muon": optimizers.muon(),
}
"""Names of optimizers, and one of attsvm with such steps."""


def test_no_verdict_contradicts_the_table_of_standings(catalogue):
    compared = 0
    for entry in catalogue.entries:
        optimizer = STEPS.get(entry.optimizer.rsplit(".", 1)[-1].lower())
        if optimizer is None or not entry.is_named or entry.decays:
            continue
        given = SETTINGS.get(entry.setting, {})
        attention = given.get("attention", "combined")
        steps = optimizer.limit(attention).steps
        steps = (replace(steps, factors="short") if steps.factors == "any" else steps).family
        size = (given["batch_size"],) if "batch_size" in given else ()
        rows = [
            row
            for row in table()
            if row.steps == steps
            and row.attention == attention
            and (row.model, row.heads, row.columns) == ("fixed head", "one", "all")
            and (row.decay, row.momentum, row.radius, row.batch) == (0.0, (0.0, 0.0), (), size)
        ]
        compared += bool(rows)
        assert entry.verdict not in {row.norm for row in rows if row.found is Found.NONE}, entry
        measured = {row.norm for row in rows if row.found is Found.MEASURED}
        assert not measured or entry.verdict in measured, entry
    assert compared >= 4
