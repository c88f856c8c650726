"""What early stopping validates on, and reports that show an imbalance."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn.metrics import balanced_accuracy_score, classification_report, confusion_matrix, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_score

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences, digit_bags
from attsvm.estimator.task import ClassificationTask
from attsvm.estimator.validation import FEWEST, held_out

KINDS = [AttentionClassifier, DetectorClassifier]


def bags(n=60, share=2, seed=0):
    generator = np.random.default_rng(seed)
    labels = (np.arange(n) % share == 0).astype(int)
    arrays = [generator.normal(size=(1 + generator.integers(5), 3)) for _ in range(n)]
    for array, label in zip(arrays, labels, strict=True):
        array[0] += 3 * label
    return arrays, labels


def task_of(labels, num_classes=2):
    rows = np.arange(len(labels))
    sequences = Sequences(np.ones((1, 1)), np.zeros(len(labels), int), np.arange(len(labels) + 1))
    return ClassificationTask(sequences, np.asarray(labels)[rows], np.ones(len(labels)), num_classes)


@pytest.mark.parametrize(("counts", "expected"), [((94, 500), None), ((95, 500), (10, 50)), ((200, 300, 94), None)])
def test_a_tenth_of_each_class_is_held_out_or_nothing_if_a_class_has_fewer_than_ten(counts, expected):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    chosen = held_out(task_of(labels, len(counts)), None, None, np.random.RandomState(0))
    assert (not chosen.any()) if expected is None else (np.bincount(labels[chosen]).tolist() == list(expected))


@pytest.mark.parametrize("size", [1, 7, 40, 400])
def test_groups_are_not_divided_and_classes_get_about_their_share(size):
    generator = np.random.default_rng(size)
    labels = (generator.random(2000) < 0.2).astype(int)
    groups = np.array([f"patient {number}" for number in generator.integers(2000 // size, size=2000)])
    chosen = held_out(task_of(labels), 0.1, groups, np.random.RandomState(0))
    assert not {*groups[chosen]} & {*groups[~chosen]}
    counts, found = np.bincount(labels), np.bincount(labels[chosen], minlength=2)
    assert (found <= 0.2 * counts).all()
    if size < 400:
        assert (found >= 0.1 * counts - 1).all()
        by_default = held_out(task_of(labels), None, groups, np.random.RandomState(0))
        assert (np.bincount(labels[by_default]) >= FEWEST).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_validation_holds_out_the_same_bags(kind):
    pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")
    arrays, labels = bags()
    model = kind(max_steps=30, random_state=0, scale="common")
    held = np.arange(60) % 5 == 0
    train = [array for array, own in zip(arrays, held, strict=True) if not own]
    own = [array for array, own in zip(arrays, held, strict=True) if own]
    expected = model.fit(arrays, labels, validation=np.flatnonzero(held)).history_
    assert expected["validation_loss"] == model.fit(arrays, labels, validation=held).history_["validation_loss"]
    assert "validation_loss" not in model.fit(arrays, labels).history_
    # bags of their own: centre and scale are of the training bags as before, and so are the steps
    of_own = model.fit(train, labels[~held], validation=(own, labels[held])).history_
    np.testing.assert_allclose(of_own["validation_loss"], expected["validation_loss"], rtol=1e-9)
    names = np.array([f"bag {i:02}" for i in range(60)])
    frame = pandas.DataFrame(np.concatenate(arrays), columns=list("abc"))
    frame = frame.assign(bag=np.repeat(names, list(map(len, arrays))))
    y = pandas.Series(labels, index=names)
    of_table = model.fit(frame, y, bag="bag", validation=names[held]).history_
    np.testing.assert_allclose(of_table["validation_loss"], expected["validation_loss"], rtol=1e-9)
    mask = pandas.Series(held, index=names)[::-1]
    assert model.fit(frame, y, bag="bag", validation=mask).history_ == of_table
    is_held = frame["bag"].isin(names[held])
    of_tables = model.fit(frame[~is_held], y[~held], bag="bag", validation=(frame[is_held], y[held])).history_
    np.testing.assert_allclose(of_tables["validation_loss"], expected["validation_loss"], rtol=1e-9)
    # positions count sequences of weight 0, too
    weights = np.where(np.arange(60) % 10 == 0, 0, 1)
    with_zeros = model.fit(arrays, labels, weights, validation=np.flatnonzero(held)).history_
    loss = model.fit(arrays, labels, weights, validation=np.flatnonzero(held & (weights > 0))).history_
    assert with_zeros["validation_loss"] == loss["validation_loss"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation": 1.5}, r"^validation: expected a number in \(0, 1\), got 1.5$"),
        ({"validation": [60]}, "^validation: expected a share, some of the 60 sequences by their positions, "),
        ({"validation": np.ones(60, bool)}, "^validation: expected a share, some of the 60 sequences"),
        ({"validation": []}, "^validation: expected a share"),
        (
            {"validation": ([np.ones((1, 3))],)},
            "^validation: expected a tuple of sequences and labels$",
        ),
        ({"validation": ([np.ones((1, 3))], [5])}, "^y: expected one of the labels 0, 1, got 5$"),
        ({"validation": ([np.ones((1, 2))], [1])}, "^X has 2 features, but "),
        ({"validation": np.arange(0, 60, 2)}, "^validation: expected some sequences of each class outside of it, "),
        ({"validation": [0, 1], "groups": np.arange(60)}, "^validation: .* and a share or None beside groups$"),
        ({"groups": np.arange(59)}, r"^groups: expected one for each of 60 sequences, got shape \(59,\)$"),
        ({"groups": ["a", None] * 30}, "^groups: expected one for each of 60 sequences, got None for 30 of them$"),
        ({"groups": np.arange(60.0) % 7 * np.nan}, "^groups: .*, got nan for 60 of them$"),
        (
            {"validation": [np.ones((2, 3)), np.ones(2)]},
            "^validation: expected a share, some of the 60 sequences by [^\\n]*$",
        ),
        ({"validation": 0.001}, "^validation: expected a share for which some sequences can be held out, got 0.001$"),
        (
            {"validation": 0.2, "groups": np.zeros(60)},
            "^validation: expected a share for which some groups can be held out, got 0.2$",
        ),
    ],
)
def test_what_cannot_be_validated_on_is_refused(given, message):
    arrays, labels = bags()
    with pytest.raises(ValueError, match=message):
        AttentionClassifier(max_steps=1).fit(arrays, labels, **given)
    with pytest.raises(ProblemError, match=r"^validation: expected None with early_stopping=False"):
        AttentionClassifier(max_steps=1, early_stopping=False).fit(arrays, labels, validation=0.5)


def test_groups_reach_a_fit_in_a_search_whose_folds_keep_them_together(monkeypatch):
    arrays, labels = bags(n=240)
    groups = np.repeat(np.arange(60), 4)
    seen = []
    monkeypatch.setattr(
        "attsvm.estimator.base.held_out",
        lambda task, share, owners, generator: seen.append(owners) or np.zeros(len(task.labels), bool),
    )
    with sklearn.config_context(enable_metadata_routing=True):
        model = AttentionClassifier(max_steps=5, random_state=0).set_fit_request(groups=True)
        cross_val_score(model, arrays, labels, cv=GroupKFold(3), params={"groups": groups}, error_score="raise")
    assert [len({*owners}) for owners in seen] == [40, 40, 40]


@pytest.mark.parametrize("classes", [2, 3])
def test_the_report_is_that_of_scikit_learn_beside_the_largest_class(classes):
    generator = np.random.default_rng(0)
    names = np.array(["ill", "odd", "well"])[:: 1 if classes == 3 else 2]
    labels = names[generator.choice(classes, 90, p=[0.1, 0.3, 0.6][-classes:] if classes == 3 else [0.1, 0.9])]
    arrays = [generator.normal(size=(2, 3)) + 2 * np.eye(3)[np.searchsorted(names, label)] for label in labels]
    model = AttentionClassifier(max_steps=60, random_state=0).fit(arrays[:60], labels[:60])
    X, y = arrays[60:], labels[60:]
    found, predicted = model.report(X, y), model.predict(X)
    np.testing.assert_array_equal(found.confusion, confusion_matrix(y, predicted, labels=names))
    reference = classification_report(y, predicted, output_dict=True, zero_division=np.nan)
    np.testing.assert_allclose(found.precision, [reference[name]["precision"] for name in names])
    np.testing.assert_allclose(found.recall, [reference[name]["recall"] for name in names])
    assert found.accuracy == pytest.approx(model.score(X, y))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, predicted))
    assert found.majority == (y == "well").mean()
    scores = model.predict_proba(X)
    expected = (
        roc_auc_score(y, scores, multi_class="ovr", average="macro")
        if classes == 3
        else roc_auc_score(y == "well", model.decision_function(X))
    )
    assert found.auroc == pytest.approx(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = model.report(X[:1], y[:1])  # neither an AUROC nor a recall of the others, and no warning of NumPy
    assert np.isnan(alone.auroc)
    assert np.isnan(alone.recall).sum() == classes - 1
    assert "largest training class" in repr(found)


def test_a_rare_class_is_ranked_as_well_with_weights_and_early_stopping_as_without():
    data = digit_bags(800, 1000, seed=10)
    keep = np.sort(np.concatenate([np.flatnonzero(data.train_labels == k)[:count] for k, count in ((1, 25), (0, 375))]))
    scores = []
    for early_stopping in (True, False):
        model = AttentionClassifier(
            class_weight="balanced", early_stopping=early_stopping, max_steps=1000, random_state=0
        )
        model.fit(data.train[keep], data.train_labels[keep])
        scores.append(roc_auc_score(data.test_labels, model.decision_function(data.test)))
    # the order of the batches differs
    assert abs(scores[0] - scores[1]) < 0.02
    assert min(scores) > 0.9


def test_a_validation_loss_above_that_of_the_shares_is_not_called_below_it():
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=(4, 3)) for _ in range(200)]
    labels = np.arange(200) % 20 == 0
    model = AttentionClassifier(alpha=0.0, class_weight={True: 1.0, False: 1.0}, max_steps=200, random_state=0)
    model.fit(arrays, labels, validation=np.flatnonzero(np.arange(200) % 40 == 0))
    with pytest.warns(
        RuntimeWarning,
        match=r"is no better than always predicting the class frequencies, 0\.20: these "
        r"sequences",
    ):
        model.margin_report(arrays)
