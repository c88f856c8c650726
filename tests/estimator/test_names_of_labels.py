"""Labels reach the bags that they are of: no row, and no number of a meta-estimator, is taken for another name."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.model_selection import cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences
from attsvm.estimator.inputs import read

pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")


@pytest.fixture(scope="module")
def table():
    """Bags that are named by integers, in any order, so that names of bags are also numbers of rows."""
    generator = np.random.default_rng(0)
    bag = generator.permutation(np.repeat(np.arange(20), 3))
    frame = pandas.DataFrame(generator.normal(size=(60, 2)), columns=["a", "b"]).assign(bag=bag)
    return frame, pandas.Series(generator.permutation(np.arange(20) % 2), index=pandas.Index(range(20), name="bag"))


def aligned(frame, y):
    return read(AttentionClassifier(), frame, reset=True, bag="bag").align("y", y)


def test_labels_of_rows_are_those_of_their_bags_and_never_looked_up_as_bags(table):
    frame, labels = table
    of_rows = frame["bag"].map(labels)
    assert (of_rows[labels.index] != labels).any(), "rows and bags have the same numbers and other labels"
    expected = labels[frame["bag"].unique()].to_numpy()
    for X, y in (
        (frame, of_rows),
        (frame, of_rows.sample(frac=1, random_state=0)),  # found by the index of the rows
        (frame, of_rows.to_dict()),
        (frame.set_index(frame.index + 100), of_rows),  # found by their number
        (frame.assign(bag=frame["bag"].map("bag {}".format)), of_rows),
    ):
        with pytest.warns(
            UserWarning,
            match=r"^y: expected one value for each bag, got one for each row; the values in a bag are "
            r"equal",
        ):
            assert (aligned(X, y) == expected).all()
    with pytest.raises(ProblemError, match=r"^y: .* with several in bag \d+; reduce them, as y\.groupby\(X\['bag'\]\)"):
        aligned(frame, of_rows.sample(frac=1, random_state=0).reset_index(drop=True))
    with pytest.raises(ProblemError, match=r"^sample_weight: expected one value for each bag, got one for each row, "):
        AttentionClassifier(max_steps=1).fit(frame, labels, pandas.Series(np.arange(60.0)), bag="bag")


def test_labels_of_bags_are_found_whatever_the_numbers_of_rows(table):
    frame, labels = table
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for y in (labels, labels[::-1], labels.rename_axis(None), labels.to_dict(), labels.reset_index(name="y")):
            assert (aligned(frame, y) == labels[frame["bag"].unique()]).all()
        # labels of more bags than the table has rows, and rows among their names
        few = frame.iloc[:5].assign(bag=[7, 7, 7, 7, 8])
        assert aligned(few, pandas.Series(np.arange(20) % 2)).tolist() == [1, 0]
        # several labels within a bag of few rows: those of the index are no labels of the rows
    one_row = pandas.DataFrame({"bag": np.arange(20)[::-1], "a": 0.0})
    with pytest.raises(
        ProblemError, match=r"an index of bags, got one that fits both the bags and the rows, .*rename_axis"
    ):
        aligned(one_row, labels.rename_axis(None))
    assert (aligned(one_row, labels) == labels[::-1]).all()


@pytest.mark.parametrize("kind", [DetectorClassifier, AttentionClassifier])
@pytest.mark.parametrize(("positive", "other"), [("yes", "no"), ("ill", "well"), (1, 2)])
def test_a_positive_label_keeps_its_meaning_where_a_meta_estimator_numbers_the_labels(kind, positive, other):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 3))
    X[:40, 0] += 3
    y = np.array([positive, other])[np.repeat([0, 1], 40)]
    model = kind(positive=(positive, other), max_steps=20, random_state=0)
    plain = model.fit(X, y)
    assert plain.positive_ == positive
    expected = plain.decision_function(X)
    numbered = kind(positive=(positive, other), max_steps=20, random_state=0).fit(
        X, (y == plain.classes_[1]).astype(int)
    )
    np.testing.assert_array_equal(numbered.decision_function(X), expected)
    for meta in (VotingClassifier([("a", model)]), OneVsRestClassifier(model)):
        assert (meta.fit(X, y).predict(X) == plain.predict(X)).all()
    for meta in (BaggingClassifier(model, n_estimators=1, random_state=0), StackingClassifier([("a", model)], cv=2)):
        assert meta.fit(X, y).estimators_[0].positive_ == plain.classes_.tolist().index(positive)
    assert cross_val_predict(model, X, y, cv=2, method="predict_proba").shape == (80, 2)
    if isinstance(positive, str):
        alone = kind(positive=positive, max_steps=20, random_state=0)
        if kind is AttentionClassifier:  # it learns the same for either class
            assert VotingClassifier([("a", alone)]).fit(X, y).estimators_[0].positive_ is None
        else:
            message = (
                rf"^positive: .* 0, 1, got '{positive}'; if a meta-estimator .* positive=\('{positive}', \.\.\.\)$"
            )
            with pytest.raises(ProblemError, match=message):
                VotingClassifier([("a", alone)]).fit(X, y)


@pytest.mark.parametrize(
    "positive", [("yes", "yes"), ("yes", "no", "perhaps"), ("yes", 0), ("maybe", "no"), (), ["yes"]]
)
def test_a_pair_that_is_none_is_refused(positive):
    numbered = [] if positive == ("maybe", "no") else [[0, 1]]
    for y in (["yes", "no"], *numbered):
        with pytest.raises(ProblemError, match="positive: expected one of the labels"):
            DetectorClassifier(positive=positive, max_steps=1).fit(np.eye(2)[:, None], y)


def test_labels_of_sequences_of_a_table_in_another_order_are_refused(table):
    frame, labels = table
    bags = Sequences.from_table(frame, bag="bag")
    assert bags.names.tolist() == frame["bag"].unique().tolist()
    model = AttentionClassifier(max_steps=1, random_state=0)
    for y in (labels, labels.reset_index(drop=True)):
        with pytest.raises(
            ProblemError, match=r"^y: expected the bags in the order of X, .*; write y\.loc\[X\.names\], or y\.to"
        ):
            model.fit(bags, y)
    in_order = labels.loc[bags.names]
    of_bags = model.fit(bags, in_order).decision_function(bags)
    assert (model.fit(frame, labels, bag="bag").decision_function(frame)[bags.names] == of_bags).all()
    # a part, as a search makes it
    model.fit(bags[5:], in_order.iloc[5:])
    with pytest.raises(ProblemError, match=r"^names: expected 20, one for each sequence, got 2$"):
        Sequences(bags.table, bags.ids, bags.offsets, names=np.array([1, 2]))
