"""Model files: the same predictions in another process, no code in files, and errors that name what does not fit."""

import json
import subprocess
import sys
import warnings
import zipfile
from contextlib import nullcontext

import numpy as np
import optax
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import attsvm
from attsvm import AttentionClassifier, AttentionRegressor, DetectorClassifier, ProblemError, load_model
from attsvm._utils.archives import META
from attsvm.datasets import Sequences
from attsvm.estimator.ranges import check_ranges, ranges_of

SHORT = {"max_steps": 25, "random_state": 0}


def table(seed=0, n=60):
    """Bags of a table with numbers, categories, of which some are missing, and labels by bag."""
    generator = np.random.default_rng(seed)
    bag = np.repeat([f"bag {i}" for i in range(n)], 4)
    frame = pd.DataFrame(
        {"bag": bag, "mass": generator.normal(70, 10, 4 * n), "age": generator.integers(20, 80, 4 * n)}
    )
    frame["site"] = generator.choice(["left", "right", None], 4 * n)
    frame["note"] = generator.choice(["a fever", "no fever", "a cough and a fever"], 4 * n)
    labels = pd.Series(np.array(["ill", "well", "unknown"])[np.arange(n) % 3], index=frame.bag.unique())
    return frame, labels


def kinds():
    """Fitted estimators of each kind, with what they predict on."""
    frame, labels = table()
    arrays = [np.array(rows[["mass", "age"]]) for _, rows in frame.groupby("bag", sort=False)]
    numbers, two = frame.drop(columns=["site", "note"]), labels.replace("unknown", "ill")
    text = make_column_transformer(
        (TfidfVectorizer(), "note"), ("drop", ["site"]), remainder=make_column_transformer((SimpleImputer(), ["mass"]))
    )
    plain = frame.drop(columns="note")
    fitted = {
        "arrays": (AttentionClassifier(**SHORT).fit(arrays, np.arange(60) % 2), arrays),
        "float32": (AttentionClassifier(**SHORT).fit([a.astype(np.float32) for a in arrays], [*labels]), arrays),
        "three classes": (AttentionClassifier(**SHORT).fit(numbers, labels, bag="bag"), numbers),
        "categories": (AttentionClassifier(**SHORT, keep_sample=True).fit(plain, labels, bag="bag"), plain),
        "detectors": (DetectorClassifier(4, positive="ill", **SHORT).fit(plain, two, bag="bag"), plain),
        "many detectors": (DetectorClassifier(4, **SHORT).fit(arrays, [*labels]), arrays),
        "token_net": (AttentionClassifier(token_net=text, **SHORT).fit(frame, labels, bag="bag"), frame),
        "scaler": (DetectorClassifier(4, token_net=StandardScaler(), **SHORT).fit(arrays, [*labels]), arrays),
        "optax": (AttentionClassifier(optax.sgd(0.1), **SHORT).fit(arrays, [*labels]), arrays),
        "in parts": (AttentionClassifier(class_weight={0: 1.0, 1: 2}).partial_fit(arrays, np.arange(60) % 2), arrays),
    }
    return fitted


@pytest.fixture(scope="module")
def fitted():
    return kinds()


OTHER_PROCESS = """
import sys
import numpy as np
import attsvm
sys.path.insert(0, {folder!r})
from data import inputs
for name, X in inputs.items():
    model = attsvm.load_model(f"{folder}/{{name}}.npz")
    np.savez(f"{folder}/{{name}} predicted.npz", p=model.predict_proba(X), s=np.concatenate(
        [np.atleast_1d(one) for one in model.instance_scores(X, class_=model.classes_[0])]))
"""


def test_predictions_in_another_process_are_equal_to_the_last_bit(fitted, tmp_path):
    for name, (model, _) in fitted.items():
        model.save(tmp_path / f"{name}.npz")
    frames = {
        name: X.to_csv(tmp_path / f"{name}.csv", index=False) for name, (_, X) in fitted.items() if hasattr(X, "to_csv")
    }
    np.savez(tmp_path / "arrays given.npz", np.array(fitted["arrays"][1]))
    (tmp_path / "data.py").write_text(
        "import numpy as np, pandas as pd\n"
        f"arrays = [*np.load({str(tmp_path / 'arrays given.npz')!r})['arr_0']]\n"
        f"inputs = {{name: arrays for name in {[name for name in fitted if name not in frames]}}}\n"
        f"inputs |= {{name: pd.read_csv(f'{tmp_path}/{{name}}.csv') for name in {[*frames]}}}\n"
    )
    script = OTHER_PROCESS.format(folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    for name, (model, X) in fitted.items():
        given = pd.read_csv(tmp_path / f"{name}.csv") if name in frames else X
        with np.load(tmp_path / f"{name} predicted.npz") as found:
            np.testing.assert_array_equal(found["p"], model.predict_proba(given), err_msg=name)
            scores = [np.atleast_1d(one) for one in model.instance_scores(given, class_=model.classes_[0])]
            np.testing.assert_array_equal(found["s"], np.concatenate(scores), err_msg=name)


@pytest.mark.parametrize("loss", ["squared_error", "quantile", "cox"])
def test_regressors_predict_the_same_and_go_on(loss, tmp_path):
    generator = np.random.default_rng(0)
    bags = [generator.normal(size=(size, 3)) for size in generator.integers(1, 5, 40)]
    targets = np.array([bag.sum() for bag in bags])
    y = np.column_stack([generator.integers(2, size=40), np.exp(-targets)]) if loss == "cox" else targets
    model = AttentionRegressor(loss=loss, **SHORT).fit(bags, y)
    model.save(tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(bags), model.predict(bags))
    assert loaded.score(bags, y) == model.score(bags, y)
    with pytest.raises(ProblemError, match="column 0 in the unit of the fit"):
        loaded.predict([1000 + bag for bag in bags])


def test_a_loaded_model_has_what_was_fitted_but_no_sample(fitted, tmp_path):
    for name, (model, X) in fitted.items():
        model.save(tmp_path / "model.npz")
        loaded = load_model(tmp_path / "model.npz")
        assert type(loaded) is type(model)
        assert {*vars(loaded)} == {*vars(model)}, name
        np.testing.assert_equal(getattr(loaded, "history_", {}), getattr(model, "history_", {}))
        assert (loaded._sample, loaded._state.optimizer) == (None, None)
        assert loaded.classes_.tolist() == model.classes_.tolist()
        assert loaded._tally.counts.tolist() == model._tally.counts.tolist()
        loaded.save(tmp_path / "again.npz")
        again = load_model(tmp_path / "again.npz")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    loaded, model, arrays = load_model(tmp_path / "model.npz"), *fitted["in parts"]
    assert loaded.class_weight == {0: 1.0, 1: 2}
    assert loaded.partial_fit(arrays, np.arange(60) % 2).n_iter_ == model.n_iter_ + 1  # with a new state of Adam
    fitted["optax"][0].save(tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    with pytest.raises(ProblemError, match="which the model file left out"):
        loaded.fit(arrays, np.arange(60) % 2)
    assert loaded.set_params(optimizer="adam").fit(arrays, np.arange(60) % 2).n_iter_ == 25


def test_what_is_no_data_is_refused_when_it_is_saved(fitted, tmp_path):
    arrays = fitted["arrays"][1]
    with pytest.raises(NotFittedError):
        AttentionClassifier().save(tmp_path / "model.npz")
    with_function = FunctionTransformer(lambda tokens: tokens)
    model = AttentionClassifier(token_net=with_function, **SHORT).fit(arrays, np.arange(60) % 2)
    with pytest.raises(ProblemError, match=r"^model/token_net: .*; save the estimator with joblib.dump"):
        model.save(tmp_path / "model.npz")
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    model = AttentionClassifier(token_net=torch.nn.Linear(2, 3), **SHORT).fit(arrays, np.arange(60) % 2)
    with pytest.raises(ProblemError, match=r"^model/token_net: expected numbers, words and arrays, got Linear; save"):
        model.save(tmp_path / "model.npz")
    assert not [*tmp_path.iterdir()]


def changed(path, change):
    """Change the meta data of an archive."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with np.load(path) as archive:
        meta = json.loads(archive[META].tobytes())
    change(meta)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            if name != f"{META}.npy":
                archive.writestr(name, content)
        with archive.open(f"{META}.npy", "w") as stream:
            np.save(stream, np.frombuffer(json.dumps(meta).encode(), np.uint8))


CHANGES = {
    "schema 2; it was written by attsvm 7.0": lambda meta: meta.update(schema=2, version="7.0"),
    "the class 'os.system'": lambda meta: meta["model"].update({"class": "os.system"}),
    "the class 'Popen'": lambda meta: meta["model"]["values"].update(_state={"class": "Popen", "values": {}}),
    "expected one of AttentionClassifier": lambda meta: meta.update(model={"unsaved": "x"}),
    "model/prompt_": lambda meta: meta["model"]["values"].update(prompt_={"array": "model/prompt_ of none"}),
    "it holds 'pickle'": lambda meta: meta["model"]["values"].update(prompt_={"pickle": "x"}),
    "not a complete model": lambda meta: meta.pop("model"),
    "kind 'model'": lambda meta: meta.update(kind="run"),
}


@pytest.mark.parametrize("named", CHANGES)
def test_a_file_that_does_not_fit_is_refused_by_name(fitted, tmp_path, named):
    path = tmp_path / "model.npz"
    fitted["arrays"][0].save(path)
    changed(path, CHANGES[named])
    with pytest.raises(ProblemError, match=named) as found:
        load_model(path)
    assert str(found.value).startswith(str(path))


def test_damaged_files_and_untrusted_transformers_give_one_error(fitted, tmp_path):
    path = tmp_path / "model.npz"
    fitted["arrays"][0].save(path)
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content[:-1], b"", content[:300] + b"\0" * 200 + content[500:]):
        path.write_bytes(damaged)
        with pytest.raises(ProblemError, match=r"model\.npz"):
            load_model(path)
    # a transformer that skops does not trust is not read, even where a file claims that it is one of scikit-learn
    skops = pytest.importorskip("skops.io", reason="skops (extra `models`) is not installed")
    fitted["scaler"][0].save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["model/token_net_"] = np.frombuffer(skops.dumps(FunctionTransformer(attsvm.fit)), np.uint8)
    np.savez(path, **arrays)
    with pytest.raises(ProblemError, match=r"not a complete model \(.*ntrusted types.*attsvm"):
        load_model(path)


def test_predictions_refuse_other_columns_kinds_and_units_by_name(fitted, tmp_path):
    model, _ = fitted["categories"]
    model.save(tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    new = table(seed=1)[0].drop(columns="note")
    expected = model.predict_proba(new)
    pd.testing.assert_frame_equal(model.predict_proba(new[[*new.columns[::-1]]]), expected)
    for changed_table, named in (
        (new.drop(columns="age"), "missing age$"),
        (new.rename(columns={"age": "years"}), "missing age and unknown years$"),
        (new.assign(height=1.8), "unknown height; leave them out, as attsvm predict --drop does$"),
        (new.assign(mass="heavy"), "expected numbers in column 'mass', as in the fit, got words"),
        (new.assign(site=1.0), "expected words in column 'site', as in the fit, got numbers"),
        (new.assign(mass=new.mass * 1000), "expected column 'mass' in the unit of the fit, where its numbers are from"),
        (new.assign(mass=new.mass / 1000), "expected column 'mass' in the unit of the fit"),
        (new.assign(age=new.age * 365), "expected column 'age' in the unit of the fit"),
    ):
        for predict in (model.predict, model.attention, lambda X: model.report(X, table(seed=1)[1])):
            with pytest.raises(ProblemError, match=named):
                predict(changed_table)
    with pytest.warns(RuntimeWarning, match="column 'site' has above, unlike in the fit"):
        model.predict(new.assign(site="above"))
    in_grams = new.assign(mass=new.mass * 1000)
    model.ranges_ = None
    assert model.predict(in_grams).shape == (60,)
    arrays, of_arrays = fitted["arrays"][1], load_model_of(fitted["arrays"][0], tmp_path)
    with pytest.raises(ProblemError, match="X has 1 features, but AttentionClassifier is expecting 2"):
        of_arrays.predict([array[:, :1] for array in arrays])
    with pytest.raises(ProblemError, match="expected column 0 in the unit of the fit"):
        of_arrays.predict([array * [1000, 1] for array in arrays])


def test_a_column_that_is_mostly_outside_its_range_is_warned_of():
    generator = np.random.default_rng(0)
    of_fit = np.column_stack([generator.normal(100, 20, 300), generator.normal(size=300)])
    ranges = ranges_of(Sequences(of_fit, np.arange(300), [0, 300]))
    for size, warned in ((60, True), (19, False)):
        new = of_fit[:size] / [18, 1]  # from mg/dl to mmol/l: not far enough to be refused
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_ranges(Sequences(new, np.arange(size), np.arange(size + 1)), ranges, ("glucose", "other"))
        assert len(caught) == warned
    with pytest.warns(RuntimeWarning, match="column 'glucose' may be in another unit than in the fit, where"):
        check_ranges(Sequences(of_fit / [18, 1], np.arange(300), np.arange(301)), ranges, ("glucose", "other"))


@pytest.mark.filterwarnings("error")
def test_a_single_bag_is_no_reason_to_warn_of_another_unit():
    ranges = np.array([[0.0, 1.0]])
    new = np.random.default_rng(0).normal(2, 0.1, (50, 1))  # the tokens of a bag are alike, and outside
    check_ranges(Sequences(new, np.arange(50), [0, 50]), ranges)
    with pytest.raises(RuntimeWarning, match="column 0 may be in another unit"):
        check_ranges(Sequences(new, np.arange(50), np.arange(0, 51, 10)), ranges)
    for few, warned in (([2.1, 2.2], True), ([2.1, 1.9], False), ([2.1], False), ([12.0], True), ([-1.1, 2.1], True)):
        few_tokens = Sequences(np.array(few)[:, None], np.arange(len(few)), [0, len(few)])
        with pytest.raises(RuntimeWarning, match="column 0 may be") if warned else nullcontext():
            check_ranges(few_tokens, ranges)


def test_what_is_filled_although_nothing_is_known_of_it_is_warned_of():
    frame, labels = table()
    frame = frame[["bag", "mass", "age"]]
    net = SimpleImputer(keep_empty_features=True)
    model = AttentionClassifier(token_net=net, **SHORT).fit(frame, labels, bag="bag")
    empty, few = frame["bag"].isin(["bag 3", "bag 7"]), frame[:4]
    numbers = frame.mask(empty).assign(bag=frame["bag"])
    for X, said in (
        (numbers, "missing in bag bag 3, bag 7$"),
        (frame.assign(age=np.nan), "missing in column 'age', unl"),
    ):
        for given in (X, Sequences.from_table(X, bag="bag")):
            with pytest.warns(RuntimeWarning, match=f"X: every entry is {said}"):
                model.predict(given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a number here and there is missing everywhere, and in a few rows a column
        for X in (frame, frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1).assign(bag=frame["bag"])):
            model.predict(X)
        model.predict(few.assign(age=np.nan))


def load_model_of(model, folder):
    model.save(folder / "model.npz")
    return load_model(folder / "model.npz")


@pytest.mark.filterwarnings("error")
def test_no_data_of_the_distribution_of_the_fit_are_refused():
    generator = np.random.default_rng(0)
    draws = [generator.standard_cauchy, generator.standard_normal, lambda n: np.exp(5 * generator.standard_normal(n))]
    draws += [lambda n: generator.pareto(0.3, n), lambda n: generator.integers(2, size=n) * generator.random(n) * 1e6]

    def sequences(draw):
        size = int(generator.integers(20, 60))
        return Sequences(draw(size * 50).reshape(size, 50), np.arange(size), [0, size])

    for draw in draws:
        for _ in range(20):
            check_ranges(sequences(draw), ranges_of(sequences(draw)))
    # bags of which all tokens share a number
    for _ in range(100):
        of_bags = np.repeat(generator.standard_normal((20, 10)), 5, axis=0)
        new = np.repeat(generator.standard_normal((4, 10)), 10, axis=0)
        ranges = ranges_of(Sequences(of_bags, np.arange(100), [0, 100]))
        check_ranges(Sequences(new, np.arange(40), [0, 40]), ranges)


def test_training_that_goes_on_widens_the_ranges():
    generator = np.random.default_rng(0)
    arrays, labels = [generator.standard_normal((5, 2)) for _ in range(20)], np.arange(20) % 2
    far = [array * [100, 1] for array in arrays]
    model = AttentionClassifier(**SHORT).partial_fit(arrays, labels)
    with pytest.raises(ProblemError, match="column 0"):
        model.predict(far)
    assert len(model.partial_fit(far, labels).predict(far)) == 20
    assert len(model.predict(arrays)) == 20
