"""``attsvm fit`` on tables and ragged arrays, and ``attsvm predict``, end to end; what they refuse."""

import csv
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import attsvm
from attsvm.datasets import Sequences, read_bags
from attsvm.errors import ProblemError
from attsvm.estimator import predict_bags, read_as_fitted
from oracles.schemas import check_result

pytestmark = pytest.mark.slow

CLASSES = np.array(["inactive", "weak", "strong"])


def table(seed, n):
    """Bags in which one row says the class: by its charge, and by the word in the column ``site``."""
    generator = np.random.default_rng(seed)
    lengths, kinds = generator.integers(3, 9, n), generator.integers(3, size=n)
    bag = np.repeat([f"{i:04d}" for i in generator.permutation(10_000)[:n]], lengths)  # names that look like numbers
    frame = pd.DataFrame({"molecule": bag, "mass": generator.normal(70, 10, len(bag))})
    frame["charge"] = generator.normal(0, 1, len(bag))
    frame["site"] = generator.choice(["left", "right", "top"], len(bag))
    telling = np.concatenate([[0], np.cumsum(lengths)[:-1]]) + generator.integers(lengths)
    frame.loc[telling, "charge"] += np.array([0, 5, 5])[kinds]
    frame.loc[telling, "site"] = np.where(kinds == 2, "bottom", frame.loc[telling, "site"])
    frame["active"], frame["patient"] = np.repeat(CLASSES[kinds], lengths), np.repeat(np.arange(n) // 2, lengths)
    return frame, telling


def run(*arguments, cwd, code=0):
    command = [sys.executable, "-m", "attsvm", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def run_here(command, monkeypatch):
    """What the command prints on stdout and stderr, run in this process, where JAX is loaded already."""

    def run(*arguments, cwd, code=0):
        monkeypatch.chdir(cwd)
        status, out, error = command(*arguments)
        assert status == code, error
        return out, error

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("bags")
    table(0, 200)[0].to_csv(found / "bags.csv", index=False)
    table(1, 60)[0].to_csv(found / "new.csv", index=False)
    options = (
        "--bag",
        "molecule",
        "--label",
        "active",
        "--groups",
        "patient",
        "--steps",
        400,
        "--out",
        "out",
        "--json",
    )
    (found / "fitted.json").write_text(run("fit", "bags.csv", *options, cwd=found).stdout)
    return found


def test_a_table_is_fitted_and_its_page_shows_the_classes(folder):
    result = json.loads((folder / "fitted.json").read_text())
    check_result(result)
    assert {entry.name for entry in (folder / "out").iterdir()} == {"index.html", "figures", "result.json", "model.npz"}
    assert result["data"]["columns"] == ["mass", "charge", "site"]
    assert result["data"]["dim"] == 2 + 4  # of site the words left, right, top and bottom
    assert result["data"]["train"] + result["data"]["test"] == 200
    assert result["accuracy"]["test"] > 0.9 > result["report"]["test"]["majority"]
    html = (folder / "out" / "index.html").read_text()
    for shown in (
        *("as inactive", "Tokens that decide", "contribution to the decision", "bottom", "model.npz", "d = 6 "),
        "Largest training class",
        "an ensemble of attention and of ridge regressions",
    ):
        assert shown in html


def test_new_bags_are_predicted_with_the_tokens_that_decide(folder):
    arguments = ("out/model.npz", "new.csv", "--out", "p.csv", "--instances", "i.csv", "--json")
    result = json.loads(run("predict", *arguments, cwd=folder).stdout)
    check_result(result)
    frame, telling = table(1, 60)
    truth = frame.groupby("molecule", sort=False)["active"].first()
    rows = list(csv.DictReader((folder / "p.csv").open()))
    assert [row["molecule"] for row in rows] == truth.index.tolist()
    right = np.array([row["predicted"] for row in rows]) == truth.to_numpy()
    assert right.mean() == result["accuracy"] > 0.9
    assert np.trace(result["report"]["confusion"]) == right.sum()
    active = truth.to_numpy() != "inactive"
    # rows are counted from 0 below the header
    assert (np.array([int(row["selected"]) for row in rows]) == telling)[active].mean() > 0.9
    model = attsvm.load_model(folder / "out" / "model.npz")
    features = frame.drop(columns=["active", "patient"])
    expected = model.predict_proba(features)
    assert (expected.index == truth.index).all()
    found = [[float(row[f"probability of {name}"]) for name in model.classes_] for row in rows]
    np.testing.assert_array_equal(found, expected)
    tokens = pd.read_csv(folder / "i.csv", dtype={"molecule": str})
    assert len(tokens) == len(frame)
    np.testing.assert_allclose(tokens.groupby("molecule")["share of attention"].sum(), 1)
    np.testing.assert_array_equal(tokens["score for weak"], model.instance_scores(features)["weak"])
    parts = tokens.groupby("molecule", sort=False)[[f"contribution to {name}" for name in model.classes_]]
    np.testing.assert_allclose(parts.sum(), model.decision_function(features), rtol=1e-9, atol=1e-9)
    # an ensemble: the selected token has the largest contribution, and no share of attention is beside it
    assert result["selected_by"] == "contribution"
    assert result["model"]["ensemble"] == ["largest similarities", "mean similarities", "extremes of columns"]
    assert "share of attention" not in rows[0]
    assert {one["share"] for one in result["predictions"]} == {None}
    for row, one, (_, of_bag) in zip(rows, result["predictions"], parts, strict=True):
        of_class = of_bag[f"contribution to {row['predicted']}"]
        assert of_class.max() == one["contribution"] == float(row["contribution to the decision"])
        assert tokens.loc[of_class.idxmax(), "token"] == one["selected"] == int(row["selected"])


def test_columns_units_and_options_are_refused_by_name(folder, run_here):
    frame = table(1, 60)[0]
    for changed, named in (
        (frame.rename(columns={"mass": "weight"}), "missing mass and unknown weight"),
        (frame.assign(mass=frame.mass * 1000), "expected column 'mass' in the unit of the fit"),
        (frame.assign(active="unheard"), "expected one of the labels inactive, strong, weak, got 'unheard'"),
        (frame.drop(columns="molecule"), "expected a column 'molecule'"),
        (frame.assign(other=1), "with unknown other; leave them out, as attsvm predict --drop does"),
    ):
        changed.to_csv(folder / "changed.csv", index=False)
        model = attsvm.load_model(folder / "out" / "model.npz")
        with pytest.raises(ProblemError, match=named):
            predict_bags(model, read_as_fitted(model, folder / "changed.csv", bag=None, label=None, drop=())[0])
    frame.assign(mass=frame.mass * 1000, other=1).to_csv(folder / "changed.csv", index=False)
    _, said = run_here("predict", "out/model.npz", "changed.csv", "--drop", "other", cwd=folder, code=2)
    expected = "attsvm: changed.csv: expected column 'mass' in the unit of the fit, where its numbers are from"
    assert said.startswith(expected)
    run_here("predict", "out/model.npz", "changed.csv", "--drop", "other", "--any-unit", "--quiet", cwd=folder)
    np.savez(folder / "arrays.npz", tokens=np.zeros((4, 3, 3)))
    for option in ("--bag", "--label", "--drop"):
        _, said = run_here("predict", "out/model.npz", "arrays.npz", option, "active", cwd=folder, code=2)
        assert said.startswith(f"attsvm: {option}: expected None for arrays, whose names are fixed, got ")


def test_a_warning_is_printed_once_though_several_results_meet_the_same_data(folder):
    frame = table(1, 60)[0]
    frame.assign(mass=frame.mass.max() * 3 + frame.mass).to_csv(folder / "changed.csv", index=False)
    command = [sys.executable, "-m", "attsvm", "predict", "out/model.npz", "changed.csv", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "attsvm: warning: X: column 'mass' may be in another unit than in the fit, where its numbers"
    )


def test_a_page_names_the_columns_and_says_if_some_are_not_shown():
    frame, _ = table(2, 40)
    few, many = ({f"x{i}": np.arange(len(frame)) % (i + 2) for i in range(number)} for number in (10, 25))
    for others, named, entries in (
        (few, "charge, site, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9.", "and the entries of that token"),
        (many, "x16 and 8 more.", "and the first 20 entries of that token"),
    ):
        wide = frame.drop(columns="patient").assign(**others)
        page = " ".join(attsvm.fit(wide, bag="molecule", labels="active", steps=20).page().split())
        assert "The classifier uses the columns mass, charge, site," in page
        assert named in page
        assert entries in page


def test_a_page_says_that_few_bags_have_an_ensemble():
    bags = attsvm.datasets.digit_bags(60, 20, seed=0)
    found = attsvm.fit(bags.train, labels=bags.train_labels, steps=25)
    result = found.numbers()
    check_result(result)
    assert result["training"]["ensemble"] is True
    assert sum(member["share"] for member in result["training"]["members"]) == pytest.approx(1)
    page = found.page()
    assert "an ensemble of attention and of ridge regressions" in page
    assert "share of attention" not in page


def test_a_page_of_attention_alone_shows_its_share():
    bags = attsvm.datasets.digit_bags(300, 20, seed=0)
    found = attsvm.fit(bags.train, labels=bags.train_labels, steps=25)
    result = found.numbers()
    check_result(result)
    assert result["training"]["members"] == []
    page = found.page()
    for shown in ("contribution to the decision", "share of attention", "Effective tokens"):
        assert shown in page
    assert "ridge" not in page


@pytest.mark.parametrize("quantile", [None, 0.9])
def test_numbers_are_predicted_by_a_regressor(tmp_path, command, monkeypatch, quantile):
    monkeypatch.chdir(tmp_path)
    frame = table(0, 40)[0].drop(columns=["active", "patient"])
    heaviest = frame.groupby("molecule", sort=False)["mass"].max()
    loss = {} if quantile is None else {"loss": "quantile", "quantile": quantile}
    model = attsvm.AttentionRegressor(max_steps=25, random_state=0, **loss).fit(frame, heaviest, bag="molecule")
    model.save("model.npz")
    frame.assign(heaviest=frame["molecule"].map(heaviest)).to_csv("new.csv", index=False)
    arguments = ("model.npz", "new.csv", "--label", "heaviest", "--json", "--out", "p.csv", "--instances", "i.csv")
    code, out, _ = command("predict", *arguments)
    result = json.loads(out)
    check_result(result)
    assert code == 0
    assert (result["quantity"], result["quantile"]) == ("mean" if quantile is None else "quantile", quantile)
    rows, tokens = (pd.read_csv(name, dtype={"molecule": str}).set_index("molecule") for name in ("p.csv", "i.csv"))
    quantity = "mean" if quantile is None else "quantile 0.9"
    predicted = rows[f"predicted {quantity}"]
    np.testing.assert_array_equal(predicted, model.predict(frame))
    np.testing.assert_allclose(rows["target"], heaviest)
    assert result["report"]["mae"] == pytest.approx((predicted - heaviest).abs().mean())
    sums = tokens.groupby(level=0, sort=False)["contribution"].sum()
    np.testing.assert_allclose(result["constant"] + sums, predicted)
    assert f"the {quantity} of the target" in command("predict", *arguments[:4])[1].replace("\n", " ")


BAD = {
    "bag: expected the column of .* with the bag of each row": {"labels": "active"},
    "labels: expected one column, got active, site; fit each by itself, as `attsvm fit .*bags.csv --label active": {
        "bag": "molecule",
        "labels": ["active", "site"],
    },
    "label: expected one entry of 'site' in each bag, got several or none in bag": {
        "bag": "molecule",
        "labels": "site",
    },
    "groups: expected one entry of 'site' in each bag, got several or none in bag": {
        "bag": "molecule",
        "labels": "active",
        "groups": "site",
    },
    "expected a column 'missing', got 'molecule'": {"bag": "molecule", "labels": "missing"},
    "labels: expected the name of the column": {"bag": "molecule"},
    "train_head: expected True for bags": {"bag": "molecule", "labels": "active", "train_head": False},
    "options: expected None for bags": {"bag": "molecule", "labels": "active", "options": {"a": "b"}},
}


@pytest.mark.parametrize("named", BAD)
def test_a_fit_to_a_table_that_lacks_something_says_what(folder, named):
    with pytest.raises(ProblemError, match=named):
        attsvm.fit(folder / "bags.csv", **BAD[named])


WRITTEN = {
    "--bag: expected the column of bags.csv with the bag of each row": ["--label", "active"],
    "--label: expected the name of the column with the labels": ["--bag", "molecule"],
    "--label: expected one column, got active, site": ["--bag", "molecule", "--label", "active", "--label", "site"],
    "bags.csv: --label: expected one entry of 'site' in each bag": ["--bag", "molecule", "--label", "site"],
    "bags.csv: --groups: expected one entry of 'site' in each bag": [
        *["--bag", "molecule", "--label", "active", "--groups", "site"]
    ],
    "--no-train-head: expected True for bags": ["--bag", "molecule", "--label", "active", "--no-train-head"],
    "--test-fraction: expected a number": ["--bag", "molecule", "--label", "active", "--test-fraction", "2"],
}


@pytest.mark.parametrize("said", WRITTEN)
def test_an_error_names_an_option_as_it_is_written(folder, command, monkeypatch, said):
    monkeypatch.chdir(folder)
    assert command("fit", "bags.csv", *WRITTEN[said])[2].startswith(f"attsvm: {said}")


def test_files_that_are_no_rectangles_are_refused(tmp_path):
    path = tmp_path / "bags.csv"
    for content, named in (
        ("b,x,y\na,1,0\na,2\n", "line 3: expected 3 fields, as in the header, got 2"),
        ("b,x,x\na,1,0\n", "expected one column 'x', got 2"),
        ("b,x,y\n,1,0\n", "expected a bag in each row"),
        ("", "expected a header, and a row for each token, got an empty file"),
        ("b;x;y\na;1,5;0\n", "expected fields separated by ',', got ';' in the header; convert the file"),
        (
            ",b,x,y\n0,a,1,0\n",
            "got none for column 0, counted from 0; if it numbers the rows, leave it out: --drop 'Unnamed: 0', or ",
        ),
        ("b,y\na,0\n", "expected at least one column of numbers or words"),
    ):
        path.write_text(content)
        with pytest.raises(ProblemError, match=named):
            read_bags(path, "b", "y")
    path.write_bytes(b"b,x\n\xff,1\n")
    with pytest.raises(ProblemError, match="expected UTF-8"):
        read_bags(path, "b")
    with pytest.raises(ProblemError, match=r"new.txt: expected bags: a table .csv, .tsv, .* or arrays .npz, .json"):
        read_bags("new.txt", "b")


def test_spaces_around_names_and_words_are_none_of_them(tmp_path):
    path = tmp_path / "bags.csv"
    path.write_text("\ufeffb , x,site,y \n001, 1.5, left ,yes\n001 ,2,left, yes\n002,3, ,no \n")
    found = read_bags(path, "b", "y")
    assert (found.sequences.columns, found.sequences.words) == (("x", "site"), {"site": ("left",)})
    assert (found.sequences.names.tolist(), found.labels.tolist()) == (["001", "002"], ["yes", "no"])
    np.testing.assert_array_equal(found.sequences.table, [[1.5, 0], [2, 0], [3, np.nan]])
    path.write_text('\nb,x,y\n1,2,yes\n1, ,yes\n2,"  ",no\n2,3,no\n')  # spaces make no words of numbers
    found = read_bags(path, "b", "y")
    assert found.sequences.words is None
    np.testing.assert_array_equal(found.sequences.table[found.sequences.ids, 0], [2, np.nan, np.nan, 3])


def test_missing_numbers_and_classes_are_named_with_the_way_out(tmp_path):
    frame, _ = table(2, 12)
    path, other = tmp_path / "bags.csv", tmp_path / "other.csv"
    frame.to_csv(other, index=False)
    frame.loc[7, "site"] = None  # a missing word is a word of its own
    frame.loc[[4, 9], "charge"] = [np.nan, np.inf]
    frame.to_csv(path, index=False)
    named = (
        "expected numbers in column 'charge', got 2 that are missing or infinite, the first in row 4, counted from 0; "
        ".* --fill mean, .* --drop charge"
    )
    for data, test in ((path, None), (other, path)):
        with pytest.raises(ProblemError, match=f"bags.csv: {named}"):
            attsvm.fit(data, bag="molecule", labels="active", test=test, drop=["patient"])
    for others in ({"groups": np.arange(12)}, {"test": frame}):
        with pytest.raises(ProblemError, match=r"groups: expected the name of a column|test: expected a file"):
            attsvm.fit(other, bag="molecule", labels="active", **others)
    frame[frame["active"] == "inactive"].drop(columns="charge").to_csv(path, index=False)
    with pytest.raises(ProblemError, match=r"^labels: expected at least two classes, got only inactive$"):
        attsvm.fit(path, bag="molecule", labels="active", groups="patient")


@pytest.mark.parametrize("with_words", [True, False])
def test_missing_numbers_are_filled_by_the_training_bags_alone(tmp_path, with_words):
    frame, _ = table(2, 40)
    frame = frame if with_words else frame.drop(columns="site")
    frame.loc[frame.index % 7 == 0, "charge"] = np.nan
    path, test, model = tmp_path / "bags.csv", tmp_path / "test.csv", tmp_path / "model.npz"
    is_test = frame["patient"] < 5
    frame[~is_test].to_csv(path, index=False)
    frame[is_test].assign(charge=np.nan).to_csv(test, index=False)
    found = attsvm.fit(path, bag="molecule", labels="active", test=test, groups="patient", fill="median", steps=20)
    mapped = found.classifier.token_net_.transform(
        frame[is_test].drop(columns=["molecule", "active", "patient"]).assign(charge=np.nan)
    )
    np.testing.assert_allclose(mapped[:, -1], frame[~is_test]["charge"].median())
    assert found.numbers()["data"]["fill"] == "median"
    assert "Missing numbers are filled with the median of their column in the training bags." in found.page()
    found.classifier.save(model)
    loaded = attsvm.load_model(model)
    again = predict_bags(loaded, read_as_fitted(loaded, test, bag=None, label=None, drop=())[0])
    np.testing.assert_array_equal(again.probability, found.test.probability)
    infinite = frame.assign(charge=frame["charge"].replace(frame["charge"][1], np.inf))
    for changed, said in (
        (infinite, r"bags.csv: expected numbers in column 'charge', got 1 that are infinite, the first in row 1,"),
        (frame.assign(charge=np.nan), "fill: expected some numbers in column 'charge', got none; leave out the column"),
    ):
        changed.to_csv(path, index=False)
        with pytest.raises(ProblemError, match=said):
            attsvm.fit(path, bag="molecule", labels="active", drop=["patient"], fill="mean", steps=20)
    with pytest.raises(ProblemError, match="fill: expected mean or median, got 'zero'"):
        attsvm.fit(path, bag="molecule", labels="active", fill="zero")
    with pytest.raises(ProblemError, match="fill: expected None for data that are no bags"):
        attsvm.fit("digits", fill="mean")


def test_labels_that_are_measurements_are_for_the_regressor(tmp_path):
    frame, _ = table(2, 12)
    frame["cost"] = frame.groupby("molecule")["mass"].transform("mean")
    frame.to_csv(tmp_path / "bags.csv", index=False)
    with pytest.raises(ProblemError, match=r"^labels: expected classes, got 12 numbers .*AttentionRegressor$"):
        attsvm.fit(tmp_path / "bags.csv", bag="molecule", labels="cost", drop=["active", "patient"])
    bags = Sequences.from_arrays(np.zeros((4, 3, 2)))
    with pytest.raises(ProblemError, match="labels: expected a label for each bag, got nan for bag 2, counted from 0"):
        attsvm.fit(bags, labels=[0, 1, np.nan, 1])


def test_every_kind_of_file_holds_the_same_bags(tmp_path):
    frame, _ = table(2, 12)
    expected, labels = Sequences.from_table(frame.drop(columns="patient"), "molecule", "active")
    frame.to_csv(tmp_path / "bags.csv", index=False)
    frame.to_csv(tmp_path / "bags.csv.gz", index=False)
    frame.to_csv(tmp_path / "bags.tsv", index=False, sep="\t")
    frame.to_json(tmp_path / "bags.jsonl", orient="records", lines=True, double_precision=15)
    frame.to_parquet(tmp_path / "bags.parquet")
    for path in sorted(tmp_path.iterdir()):
        found = read_bags(path, "molecule", "active", "patient")
        np.testing.assert_allclose(found.sequences.table[found.sequences.ids], expected.table[expected.ids], rtol=1e-14)
        assert found.sequences.names.tolist() == expected.names.tolist(), path
        assert (found.labels.tolist(), found.groups.tolist()) == (labels.tolist(), [i // 2 for i in range(12)])
        assert found.rows.tolist() == [*range(len(frame))]


def test_tables_of_bags_have_an_encoding(run_here, tmp_path):
    frame, _ = table(2, 40)
    frame.drop(columns="patient").rename(columns={"active": "größe"}).to_csv(
        tmp_path / "bags.csv", index=False, encoding="latin-1"
    )
    columns, encoding = ("--bag", "molecule", "--label", "größe", "--steps", 5), ("--encoding", "latin-1")
    error = run_here("fit", "bags.csv", *columns, cwd=tmp_path, code=2)[1]
    assert "expected UTF-8, got byte 0xf6" in error
    assert "by --encoding" in error
    run_here("fit", "bags.csv", *columns, *encoding, "--out", "result", cwd=tmp_path)
    run_here("predict", "result/model.npz", "bags.csv", *encoding, "--out", "new.csv", cwd=tmp_path)
    np.savez(tmp_path / "bags.npz", tokens=np.eye(12).reshape(4, 3, 12), labels=np.ones(4))
    error = run_here("fit", "bags.npz", *encoding, cwd=tmp_path, code=2)[1]
    assert error.startswith("attsvm: --encoding: expected None for data that are no file of a table")


def test_labels_of_arrays_are_no_option(run_here, tmp_path):
    np.savez(tmp_path / "bags.npz", tokens=np.eye(12).reshape(4, 3, 12), labels=np.ones(4))
    error = run_here("fit", "bags.npz", cwd=tmp_path, code=2)[1]
    assert error.startswith("attsvm: labels: expected both classes among the training sequences")


def test_archives_of_bags_of_different_lengths(tmp_path):
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 6, 30)
    tokens, owners = generator.standard_normal((lengths.sum(), 3)), np.repeat(np.arange(30), lengths)
    labels, offsets = np.arange(30) % 3, np.concatenate([[0], np.cumsum(lengths)])
    mixed = generator.permutation(len(tokens))
    by_offsets, by_bags = tmp_path / "offsets.npz", tmp_path / "bags.npz"
    np.savez(by_offsets, tokens=tokens, offsets=offsets, labels=labels)
    np.savez(by_bags, tokens=tokens[mixed], bag=owners[mixed], labels=labels[owners][mixed])
    found, of_bags = read_bags(by_offsets), read_bags(by_bags)
    order = [of_bags.sequences.names.tolist().index(i) for i in range(30)]
    assert found.labels.tolist() == of_bags.labels[order].tolist() == labels.tolist()
    for i, j in enumerate(order):
        np.testing.assert_array_equal(np.sort(found.sequences[i], axis=0), np.sort(of_bags.sequences[j], axis=0))
    fitted = attsvm.fit(by_offsets, steps=25, test_fraction=0)
    assert fitted.predict(found.sequences).shape == (30,)
    assert fitted.test is None
    wrong, longest = labels[owners][mixed], int(np.argmax(lengths))
    wrong[owners[mixed] == longest] = np.arange(lengths.max())
    np.savez(by_bags, tokens=tokens[mixed], bag=owners[mixed], labels=wrong)
    with pytest.raises(ProblemError, match=f"labels: expected one value in each bag, got several in bag {longest}$"):
        read_bags(by_bags)
    np.savez(by_bags, tokens=tokens)
    with pytest.raises(ProblemError, match=r"tokens: expected shape \(n, T, d\), or \(N, d\) beside one of 'bag'"):
        read_bags(by_bags)


def test_groups_are_not_divided_and_a_test_file_is_tested_on(folder):
    frame = pd.read_csv(folder / "bags.csv", dtype={"molecule": str})
    by_groups = attsvm.fit(frame, bag="molecule", labels="active", groups="patient", steps=25)
    assert not {*by_groups.train_bags.groups} & {*by_groups.test_bags.groups}
    arguments = {"bag": "molecule", "labels": "active", "drop": ["patient"], "steps": 25}
    by_file = attsvm.fit(folder / "bags.csv", test=folder / "new.csv", **arguments)
    assert (len(by_file.train_bags.sequences), len(by_file.test_bags.sequences)) == (200, 60)
    of_frames = attsvm.fit(frame, test=table(1, 60)[0], **arguments)
    assert (of_frames.test.probability == by_file.test.probability).all()


def test_a_fit_of_two_classes_predicts_and_saves_its_model(tmp_path):
    bags = attsvm.datasets.digit_bags(100, 40, seed=0)
    tokens = bags.train.table[bags.train.ids].reshape(100, 5, 64)
    words = np.where(bags.train_labels == 1, "b", "a")
    of_numbers, of_words = (attsvm.fit(tokens, labels=labels, steps=50) for labels in (bags.train_labels, words))
    found = of_numbers.predict(bags.test)
    assert {*found.tolist()} == {0, 1}
    assert (np.where(found == 1, "b", "a") == of_words.predict(bags.test)).all()
    of_numbers.save(tmp_path / "out")
    assert (attsvm.load_model(tmp_path / "out" / "model.npz").predict(bags.test) == found).all()
    fixed = attsvm.fit(tokens, labels=words, train_head=False, steps=50)
    with pytest.raises(ProblemError, match=r"^predict: expected a fit that trains prompt and prediction head together"):
        fixed.predict(bags.test)


def test_labels_that_some_bags_lack_can_be_left_out(tmp_path, run_here):
    frame = pd.DataFrame(
        {"bag": np.repeat(range(40), 2), "x": np.tile([0.0, 1.0], 40), "active": np.repeat([0, 1], 40)}
    )
    frame.to_csv(tmp_path / "bags.csv", index=False)
    run_here("fit", "bags.csv", "--bag", "bag", "--label", "active", "--steps", 5, "--out", "out", cwd=tmp_path)
    frame.assign(active=frame["active"].where(frame["bag"] != 3)).to_csv(tmp_path / "new.csv", index=False)
    said = run("predict", "out/model.npz", "new.csv", cwd=tmp_path, code=2).stderr
    assert "or none in bag 3; to predict without labels, leave them out by --drop active\n" in said
    result = json.loads(run_here("predict", "out/model.npz", "new.csv", "--drop", "active", "--json", cwd=tmp_path)[0])
    assert result["accuracy"] is None
    assert len(result["predictions"]) == 40


def test_texts_are_predicted_from_lines_and_tables(tmp_path, run_here):
    texts = ["a good film", "a bad film", "good plot and music", "the plot is bad", "so good", "so bad"] * 10
    labels = ["good" if "good" in text else "bad" for text in texts]
    pd.DataFrame({"body": texts, "mood": labels}).to_csv(tmp_path / "texts.csv", index=False)
    columns = ("--text", "body", "--label", "mood")
    run_here("fit-text", "texts.csv", *columns, "--steps", 200, "--out", "out", cwd=tmp_path)
    (tmp_path / "lines.txt").write_text("a good plot\n\nbad music\n")
    done = run("predict", "out/model.npz", "lines.txt", "--json", "--out", "lines.csv", cwd=tmp_path)
    assert "attsvm: warning: X: 1 of 3 texts have no word of the fit" in done.stderr
    result = json.loads(done.stdout)
    check_result(result)
    assert [one["share"] is None for one in result["predictions"]] == [False, True, False]
    assert pd.read_csv(tmp_path / "lines.csv")["share of attention"].isna().tolist() == [False, True, False]
    assert [one["predicted"] for one in result["predictions"]][::2] == ["good", "bad"]
    assert [one["selected"] for one in result["predictions"]] == ["good", "", "bad"]
    model = attsvm.load_model(tmp_path / "out" / "model.npz")
    expected = model.predict_proba(["a good plot", "", "bad music"])
    np.testing.assert_array_equal([one["probability"] for one in result["predictions"]], expected)
    pd.DataFrame({"body": texts[:5], "mood": labels[:5]}).to_csv(tmp_path / "new.csv", index=False)
    assert json.loads(run_here("predict", "out/model.npz", "new.csv", "--json", cwd=tmp_path)[0])["accuracy"] == 1
    own = attsvm.TextClassifier(tokenizer=str.split, max_steps=10, random_state=0).fit(texts, labels)
    with pytest.raises(ProblemError, match=r"tokenizer: expected words, spaces, .* in a model file, got str\.split"):
        own.save(tmp_path / "own.npz")
