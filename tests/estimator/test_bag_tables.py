"""Tables with a bag column: labels and columns are found by name, so order never changes a prediction."""

import pickle

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences

pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")


def classifier(scale="common"):
    """With the scale of arrays, so that all forms give the same classifier."""
    return AttentionClassifier(max_steps=100, random_state=0, scale=scale)


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=(1 + generator.integers(5), 3)) for _ in range(60)]
    labels = pandas.Series(np.where(np.arange(60) % 2, "yes", "no"), index=[f"bag {i:02}" for i in range(60)])
    for array, label in zip(arrays, labels, strict=True):
        array[0] += 3 * (label == "yes")
    frame = pandas.DataFrame(np.concatenate(arrays), columns=["a", "b", "c"])
    frame.insert(1, "bag", np.repeat(labels.index.to_numpy(), list(map(len, arrays))))
    return arrays, labels, frame


def test_a_shuffled_table_predicts_as_the_list_does(data):
    arrays, labels, frame = data
    fitted = classifier().fit(arrays, labels.to_numpy())
    expected = pandas.Series(fitted.decision_function(arrays), index=labels.index)
    # bags in the order of the list, as batches depend on it; rows, columns and labels in any
    mixed = frame[["c", "bag", "a", "b"]]
    of_table = classifier().fit(mixed, labels.sample(frac=1, random_state=0), bag="bag")
    found = of_table.decision_function(frame.sample(frac=1, random_state=1))
    assert found.index.name == "bag"
    np.testing.assert_allclose(found[expected.index], expected, rtol=1e-9)
    assert list(of_table.feature_names_in_) == ["c", "a", "b"]
    assert of_table.score(frame, labels[::-1]) == fitted.score(arrays, labels.to_numpy())
    scores = of_table.instance_scores(frame.sample(frac=1, random_state=2), class_="yes").sort_index()
    assert scores.name == "yes"
    np.testing.assert_allclose(scores, np.concatenate(fitted.instance_scores(arrays, class_="yes")), rtol=1e-9)


def test_results_of_a_table_have_the_names_of_the_classes(data):
    _, labels, frame = data
    fitted = classifier().fit(frame, labels, bag="bag")
    for found in (fitted.predict_proba(frame), fitted.predict_log_proba(frame)):
        assert list(found.columns) == ["no", "yes"]
    assert (fitted.predict_proba(frame).idxmax(axis=1) == fitted.predict(frame)).all()
    three = labels.where(np.arange(60) % 3 > 0, "unknown")
    fitted = classifier().fit(frame, three, bag="bag")
    for found in (fitted.decision_function(frame), fitted.instance_scores(frame)):
        assert list(found.columns) == ["no", "unknown", "yes"]
    selected = (
        DetectorClassifier(3, positive="yes", max_steps=10, random_state=0)
        .fit(frame, labels, bag="bag")
        .selected(frame)
    )
    assert selected.shape == (60, 3)
    assert selected.index.equals(fitted.selected(frame).index)
    scores = fitted.instance_scores(frame)
    assert scores["no"].equals(fitted.instance_scores(frame, class_="no"))


def test_other_forms_of_labels_and_other_libraries(data):
    _, labels, frame = data
    arrow = pytest.importorskip("pyarrow", reason="Arrow (extra `text`) is not installed")
    expected = classifier().fit(frame, labels, bag="bag").predict(frame)
    table = arrow.Table.from_pandas(frame, preserve_index=False)
    names = arrow.table({"bag": labels.index.to_numpy(), "y": labels.to_numpy()})
    for y in (labels.to_dict(), names):
        found = classifier().fit(table, y, bag="bag").predict(table)
        assert found.column_names == ["bag", "value"]
        assert found["bag"].to_pylist() == expected.index.tolist()
        assert found["value"].to_pylist() == expected.tolist()
    assert classifier().fit(table, names, bag="bag").predict_proba(table).column_names == ["bag", "no", "yes"]


def test_polars_tables_and_series(data):
    polars = pytest.importorskip("polars", reason="polars (extra `dev`) is not installed")
    arrays, labels, frame = data
    reference = classifier().fit(frame, labels, bag="bag")
    expected = reference.decision_function(frame)
    table, order = polars.from_pandas(frame), np.random.default_rng(0).permutation(len(frame))
    named = polars.DataFrame({"y": labels.to_numpy(), "bag": labels.index.to_numpy()})[::-1]
    of_table = classifier().fit(table, named, bag="bag")
    shuffled = table[order].select("c", "bag", "b", "a")
    found = of_table.decision_function(shuffled)
    assert isinstance(found, polars.DataFrame)
    by_name = dict(found.iter_rows())
    np.testing.assert_allclose([by_name[name] for name in expected.index], expected, rtol=1e-9)
    scores = of_table.instance_scores(shuffled, class_="yes")
    np.testing.assert_allclose(scores, reference.instance_scores(frame, class_="yes").to_numpy()[order], rtol=1e-9)
    assert of_table.score(shuffled, named) == reference.score(frame, labels)
    with pytest.raises(ProblemError, match="missing b"):
        of_table.predict(table.drop("b"))
    with pytest.raises(ProblemError, match="rows without an entry"):
        of_table.predict(table.with_columns(bag=polars.when(polars.col("a") > 0).then(polars.col("bag"))))
    numbers = (labels == "yes").to_numpy()
    of_list = classifier().fit(arrays, numbers).decision_function(arrays)
    for series in (polars.Series([array.tolist() for array in arrays]), polars.Series(arrays, dtype=polars.Object)):
        with pytest.raises(ProblemError, match=r"got \w*Series; write its to_list\(\)"):
            classifier().fit(series, numbers)
        as_list = series.to_list()
        np.testing.assert_allclose(classifier().fit(as_list, numbers).decision_function(as_list), of_list, rtol=1e-9)


def test_what_does_not_fit_is_refused(data):
    _, labels, frame = data
    fitted = classifier().fit(frame, labels, bag="bag")
    for y, message in (
        (labels.to_numpy(), "y: expected values that name their bags"),
        (labels[1:], "got none for bag 00"),
        (pandas.concat([labels, labels[:1]]), "several for some bag"),
    ):
        with pytest.raises(ProblemError, match=message):
            classifier().fit(frame, y, bag="bag")
    for changed, message in (
        (frame.rename(columns={"b": "d"}), "missing b and unknown d$"),
        (
            frame.assign(d=1.0),
            "columns of the fit, got a table with unknown d; leave them out, as attsvm predict --drop does$",
        ),
    ):
        with pytest.raises(ProblemError, match=message):
            fitted.predict(changed)
    with pytest.raises(
        ProblemError, match=r"numbers in column 'bag', got String; if it is the bag .*, write bag='bag'$"
    ):
        classifier().fit(frame, labels)
    sequences = Sequences.from_table(frame, bag="bag")
    of_sequences = classifier().fit(sequences, labels[frame["bag"].unique()])
    with pytest.raises(ProblemError, match=r"write Sequences\.from_table\(X, bag='bag'\)$"):  # predict has no bag=
        of_sequences.predict(frame)
    with pytest.raises(ProblemError, match="each row counts as a sequence of one token: pass a table with bag=, or"):
        classifier().fit(frame.assign(bag=frame["bag"].str[-2:].astype(int)), labels)
    with pytest.raises(ProblemError, match="X: expected at least one row, got none"):
        fitted.predict(frame[:0])
    with pytest.raises(ProblemError, match="bag: expected one of the columns"):
        fitted.predict(frame.drop(columns="bag"))
    with pytest.raises(ProblemError, match="expected numbers in column 'a'"):
        classifier().fit(frame.astype({"a": str}), labels, bag="bag")
    with pytest.raises(ProblemError, match=r"got DataFrameGroupBy; write .* or Sequences\.from_table$"):
        classifier().fit(frame.groupby("bag"), labels)
    with pytest.raises(ProblemError, match="rows without an entry"):
        classifier().fit(frame.assign(bag=[None, *frame["bag"][1:]]), labels, bag="bag")
    with pytest.raises(ProblemError, match="bag: expected entries of one type in 'bag', got int, str"):
        classifier().fit(frame.assign(bag=[7, *frame["bag"][1:]]), labels, bag="bag")


def test_a_list_of_tables_is_refused_as_their_columns_may_differ(data):
    _, labels, frame = data
    frames = [group[["a", "b", "c"]] for _, group in frame.groupby("bag")]
    with pytest.raises(
        ProblemError,
        match=r"^X: expected arrays, got tables; pass one table with bag=, or use "
        r"Sequences",
    ):
        classifier().fit(frames, labels.to_numpy())


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_columns_may_have_any_units(data, kind):
    arrays, labels, frame = data
    model, numbers, units = kind(max_steps=100, random_state=0), labels == "yes", np.array([1e-4, 1.0, 1e5])
    expected = model.fit(frame, numbers, bag="bag").decision_function(frame)
    table = frame.assign(**{name: 7 + unit * frame[name] for name, unit in zip("abc", units, strict=True)})
    found = model.fit(table, numbers, bag="bag").decision_function(table)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    bags = Sequences.from_table(table, bag="bag")
    np.testing.assert_allclose(model.fit(bags, numbers).decision_function(bags), expected, rtol=1e-5, atol=1e-7)
    if kind is AttentionClassifier:
        # a constant column differs from its mean by rounding, which is not scaled up
        with_constant = model.fit(frame.assign(d=0.1), numbers, bag="bag")
        np.testing.assert_allclose(with_constant.decision_function(frame.assign(d=0.1)), expected, rtol=1e-9)
    scaled = [7 + units * array for array in arrays]
    by_column = kind(max_steps=100, random_state=0, scale="columns").fit(scaled, numbers.to_numpy())
    np.testing.assert_allclose(by_column.decision_function(scaled), expected, rtol=1e-5, atol=1e-7)
    # the default, which says so as arrays may hold directions
    with pytest.warns(UserWarning, match="^X: the spreads of the columns differ by more than a factor of 10, so each"):
        model.fit(scaled, numbers.to_numpy())
    assert (model.decision_function(scaled) == by_column.decision_function(scaled)).all()
    # one number for all columns: those with small numbers hardly count
    model = kind(max_steps=100, random_state=0, scale="common").fit(scaled, numbers.to_numpy())
    assert np.abs(model.decision_function(scaled) - expected).max() > 0.1
    with pytest.raises(ProblemError, match="scale: expected 'columns', 'common' or None, got 'standard'"):
        kind(scale="standard").fit(scaled, numbers.to_numpy())


def test_missing_values_are_filled_by_a_token_net_and_named_without_one(data):
    _, labels, frame = data
    holes = frame.copy()
    holes.loc[7, "b"] = holes.loc[11, "a"] = np.nan
    net = make_pipeline(SimpleImputer(), StandardScaler())
    message = f"^X: expected finite numbers, got NaN in row 7 of sequence {frame['bag'][7]}, column b; fill missing "
    with pytest.raises(ProblemError, match=message):
        classifier().fit(holes, labels, bag="bag")
    columns = ["a", "b", "c"]
    filled = frame.assign(**dict(zip(columns, net.fit_transform(holes[columns]).T, strict=True)))
    expected = classifier(None).fit(filled, labels, bag="bag").decision_function(filled)
    model = AttentionClassifier(max_steps=100, random_state=0, token_net=net)
    for table in (holes, holes.convert_dtypes()):
        np.testing.assert_allclose(model.fit(table, labels, bag="bag").decision_function(table), expected, rtol=1e-6)
    sequences, y = Sequences.from_table(holes.assign(y=holes["bag"].map(labels)), bag="bag", target="y")
    np.testing.assert_allclose(model.fit(sequences, y).decision_function(sequences), expected, rtol=1e-6)
    # scaling alone passes missing values on
    with pytest.raises(ProblemError, match=r"^token_net: expected finite numbers, got NaN in row 7 of "):
        model.set_params(token_net=StandardScaler()).fit(holes, labels, bag="bag")


def test_sequences_of_a_table_are_searched_and_know_their_columns(data):
    _, labels, frame = data
    table = frame.assign(y=frame["bag"].map(labels)).sample(frac=1, random_state=3)
    sequences, y = Sequences.from_table(table, bag="bag", target="y")
    names = table["bag"].unique()
    assert (y == labels[names]).all()
    for name, array in zip(names, sequences, strict=True):
        assert (array == table.loc[table["bag"] == name, ["a", "b", "c"]]).all(axis=None)
    units = table.assign(a=1e6 * table["a"])
    scores = [
        cross_val_score(classifier(None), Sequences.from_table(part, "bag", "y")[0], y) for part in (table, units)
    ]
    assert (scores[0] == scores[1]).all()
    assert scores[0].mean() > 0.8
    search = GridSearchCV(classifier(None), {"alpha": [1.0, 10.0]}, cv=2, error_score="raise").fit(sequences, y)
    reordered = Sequences.from_table(table[["c", "bag", "b", "a"]], bag="bag")
    assert (search.predict(reordered) == search.predict(sequences)).all()
    with pytest.raises(ProblemError, match=r"got a table with missing c$"):
        search.predict(Sequences.from_table(table[["a", "b", "bag"]], bag="bag"))
    with pytest.raises(ProblemError, match=r"^columns: expected 3 names, got 2$"):
        Sequences(np.eye(3), [0], [0, 1], ("a", "b"))
    for wrong, message in (
        (
            table.assign(y=np.where(table["a"] > 1, "no", table["y"])),
            "target: expected one entry of 'y' in each bag, got",
        ),
        (table.assign(y=table["y"].where(table["bag"] != names[0])), f"several or none in bag {names[0]}$"),
        (table.drop(columns="y"), "target: expected one of the columns "),
    ):
        with pytest.raises(ProblemError, match=message):
            Sequences.from_table(wrong, bag="bag", target="y")


def test_masks_of_integers_and_dictionaries_of_torchmil(data):
    arrays, labels, _ = data
    numbers = (labels == "yes").to_numpy().astype(int)
    mask = np.zeros((60, 5), dtype=np.uint8)
    tokens = np.zeros((60, 5, 3))
    for i, array in enumerate(arrays):
        mask[i, : len(array)], tokens[i, : len(array)] = 1, array
    expected = classifier().fit(arrays, numbers).decision_function(arrays)
    sequences = Sequences.from_padded(tokens, mask)
    fitted = classifier().fit(sequences, numbers)
    np.testing.assert_allclose(fitted.decision_function(sequences), expected, rtol=1e-9)
    assert fitted.score(sequences, numbers) == fitted.score(arrays, numbers)
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    tensordict = pytest.importorskip("tensordict", reason="tensordict (extra `dev`) is not installed")
    # as torchmil's collate function makes them
    batch = {"X": tokens, "Y": numbers, "mask": mask}
    tensors = {name: torch.tensor(array) for name, array in batch.items()}
    for form in (batch, tensors, tensordict.TensorDict(tensors, batch_size=[60])):
        with pytest.raises(ProblemError, match=r"got \w+; write Sequences\.from_arrays, Sequences\.from_padded"):
            classifier().fit(form, numbers)
        sequences = Sequences.from_padded(form["X"], form["mask"])
        found = classifier().fit(sequences, form["Y"])
        np.testing.assert_allclose(found.decision_function(sequences), expected, rtol=1e-9)
        assert found.score(sequences, form["Y"]) == fitted.score(arrays, numbers)
    for kind in (bool, np.int8, np.uint16, np.int32, np.uint64, np.float32, float):
        np.testing.assert_array_equal(Sequences.from_padded(tokens, mask.astype(kind)).ids, sequences.ids)
    single = [{"X": array, "Y": label} for array, label in zip(arrays, numbers, strict=True)]
    with pytest.raises(ProblemError, match=r"got list; write Sequences\.from_arrays, "):
        classifier().fit(single, numbers)
    with pytest.raises(ProblemError, match="mask: expected bool"):
        Sequences.from_padded(tokens, 2 * mask)
    with pytest.raises(ProblemError, match=r"tokens: expected shape \(n, T, d\), got .*; use Sequences\.from_arrays"):
        Sequences.from_padded(arrays, mask)


def test_a_search_scores_padded_sequences_as_lists(data):
    arrays, labels, _ = data
    tokens, mask = np.full((60, 5, 3), 50.0), np.zeros((60, 5), dtype=bool)
    for i, array in enumerate(arrays):
        mask[i, : len(array)], tokens[i, : len(array)] = True, array
    results = []
    for X in (Sequences.from_padded(tokens, mask), arrays):
        search = GridSearchCV(classifier(), {"alpha": [1.0]}, cv=3, error_score="raise").fit(X, labels.to_numpy())
        results.append(search.best_score_)
    assert results[0] == results[1] > 0.8


def test_the_penalty_of_partial_fit_does_not_depend_on_the_passes_and_a_chunk_may_have_one_class(data):
    arrays, labels, _ = data
    numbers = (labels == "yes").to_numpy().astype(int)
    model = DetectorClassifier(num_detectors=3, alpha=30.0, class_weight="balanced", random_state=0)
    norms = []
    for pass_ in range(120):
        for label in (0, 1):
            chosen = np.flatnonzero(numbers == label)
            model.partial_fit([arrays[i] for i in chosen], numbers[chosen], [0, 1], num_sequences=60)
        if pass_ in (59, 119):
            norms.append(np.linalg.norm(model.detectors_))
    # with a penalty of 1 / (sequences seen) the norm would still grow
    assert norms[1] < 1.05 * norms[0]


@pytest.mark.parametrize("class_weight", ["balanced", {False: 1.0, True: 5.0}, None])
def test_a_pass_over_chunks_of_one_class_makes_the_step_of_all_sequences_together(data, class_weight):
    arrays, _, _ = data
    numbers = np.arange(60) % 6 == 0
    rare, others = np.flatnonzero(numbers), np.flatnonzero(~numbers)
    model = AttentionClassifier(
        "gradient_descent", learning_rate=1e-4, batch_size=60, class_weight=class_weight, random_state=0
    )
    # many sequences, so that the numbers of each class hardly change in the passes that are compared
    model.partial_fit(arrays * 60, list(numbers) * 60, num_sequences=60)
    before, changes = model._state.parameters, []
    for chunks in ([np.arange(60)], [others[:8], rare[:7], others[8:30], others[30:], rare[7:]]):
        copy = pickle.loads(pickle.dumps(model))
        for chunk in chunks:
            copy.partial_fit([arrays[i] for i in chunk], numbers[chunk], num_sequences=60)
        after = copy._state.parameters
        changes.append(
            np.concatenate([np.ravel(np.asarray(after[name]) - np.asarray(before[name])) for name in before])
        )
    assert np.linalg.norm(changes[1] - changes[0]) < 0.03 * np.linalg.norm(changes[0])


def test_a_refused_call_of_partial_fit_changes_nothing(data):
    _, labels, frame = data
    model, untouched = (classifier().partial_fit(frame, labels, bag="bag") for _ in range(2))
    other = labels.replace("no", "perhaps")
    with pytest.raises(ProblemError, match="got 'perhaps'"):
        model.partial_fit(frame, other)
    with pytest.raises(ProblemError, match="bag: expected 'bag', as before, got 'a'"):
        model.partial_fit(frame, labels, bag="a")
    with pytest.raises(ValueError, match="at least one"):
        model.partial_fit(frame, labels, sample_weight=0 * (labels == "yes"))
    with pytest.raises(ValueError, match="num_sequences"):
        model.partial_fit(frame.assign(a=1e9), labels, num_sequences=0)
    with pytest.raises(ProblemError, match="expected finite numbers"):
        model.partial_fit(frame.assign(a=np.where(frame["bag"] == "bag 00", np.nan, 1e9)), labels)
    np.testing.assert_array_equal(model.ranges_, untouched.ranges_)
    # bag= of the first call holds
    expected = untouched.partial_fit(frame, labels).decision_function(frame)
    assert (model.partial_fit(frame, labels, bag="bag").decision_function(frame) == expected).all()
    fresh = classifier()
    with pytest.raises(ProblemError, match="bag: expected one of the columns"):
        fresh.fit(frame, labels, bag="bags")
    assert not hasattr(fresh, "bag_")
