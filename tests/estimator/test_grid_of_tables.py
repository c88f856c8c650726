"""Kinds of tables that people have, with both classifiers: the same predictions, or one clear line."""

import datetime
import re

import numpy as np
import pytest

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences

pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")
polars = pytest.importorskip("polars", reason="polars (extra `dev`) is not installed")
arrow = pytest.importorskip("pyarrow", reason="Arrow (extra `text`) is not installed")

BAGS, COLUMNS = 20, ["a", "b", "c"]
GENERATOR = np.random.default_rng(0)
FRAME = pandas.DataFrame(GENERATOR.integers(-9, 9, (60, 3)) / 8.0, columns=COLUMNS).assign(
    bag=np.repeat(np.arange(BAGS) + 100, 3)
)
FRAME["a"] *= 1000
LABELS = pandas.Series(np.arange(BAGS) % 2, index=np.arange(BAGS) + 100)
FRAME.loc[FRAME["bag"].map(LABELS) == 1, "b"] += 1.0


def named(names):
    """The table and the labels with other names of bags."""
    names = dict(zip(LABELS.index, names, strict=True))
    return FRAME.assign(bag=FRAME["bag"].map(names)), LABELS.rename(names)


def of_rows(frame):
    return frame["bag"].map(LABELS)


DAYS = [datetime.datetime(2025, 1, 1) + datetime.timedelta(days=day) for day in range(BAGS)]
SHUFFLED = FRAME.groupby("bag", sort=False).sample(frac=1, random_state=0)
WORDS = named([f"bag {i:02}" for i in range(BAGS)])
# name: the table and its labels; every one of them says the same about the same bags
SAME = {
    "pandas": (FRAME, LABELS),
    "polars": (polars.from_pandas(FRAME), LABELS),
    "Arrow": (arrow.Table.from_pandas(FRAME), LABELS),
    "float32, exact here": (FRAME.astype(dict.fromkeys(COLUMNS, np.float32)), LABELS),
    "nullable numbers": (FRAME.convert_dtypes(), LABELS),
    "numbers of Arrow in pandas": (FRAME.convert_dtypes(dtype_backend="pyarrow"), LABELS),
    "names of bags in words": WORDS,
    "categories as names": (WORDS[0].astype({"bag": "category"}), WORDS[1]),
    "strings of Arrow as names": (WORDS[0].astype({"bag": "string[pyarrow]"}), WORDS[1]),
    "days as names": named(DAYS),
    "decimal numbers as names": named([i + 0.5 for i in range(BAGS)]),
    "small integers as names": (FRAME.astype({"bag": np.uint8}), LABELS),
    "names that are numbers of rows": named(range(BAGS)),
    "rows in another order": (SHUFFLED, LABELS),
    "an index of words": (FRAME.set_index(pandas.Index([f"row {i}" for i in range(60)])), LABELS),
    "an index that repeats": (FRAME.set_index(np.arange(60) % 7), LABELS),
    "an index of two levels": (FRAME.set_index(pandas.MultiIndex.from_product([range(6), range(10)])), LABELS),
    "bags first": (FRAME[["bag", *COLUMNS]], LABELS),
    "labels in another order": (FRAME, LABELS.sample(frac=1, random_state=0)),
    "labels of more bags": (FRAME, pandas.concat([LABELS, pandas.Series({7: 1, 8: 0})])),
    "labels in a dict": (FRAME, LABELS.to_dict()),
    "labels in a table": (FRAME, LABELS.rename_axis("bag").reset_index(name="y")),
    "labels in a table of polars": (FRAME, polars.DataFrame({"bag": LABELS.index.to_numpy(), "y": LABELS.to_numpy()})),
    "labels with the name of groupby": (FRAME, of_rows(FRAME).groupby(FRAME["bag"]).first()),
    "labels of the rows": (FRAME, of_rows(FRAME)),
    "labels of the rows of bags named by numbers": (named(range(BAGS))[0], of_rows(FRAME)),
    "other units": (FRAME.assign(b=1e6 * FRAME["b"] + 5), LABELS),
    "boolean labels": (FRAME, LABELS == 1),
    "nullable labels": (FRAME, LABELS.astype("Int64")),
    "categories as labels": (FRAME, LABELS.astype("category")),
}
# name: the table, its labels, and what the error says
REFUSED = {
    "labels without names": (FRAME, LABELS.to_numpy(), "y: expected values that name their bags"),
    "labels of other bags": (
        FRAME,
        LABELS.rename(lambda name: name + 1),
        "y: expected a value for each bag, got none for",
    ),
    "labels of rows that differ": (
        FRAME,
        pandas.Series(np.arange(60) % 2),
        "y: .* with several in bag 100; reduce them",
    ),
    "a label too many": (FRAME, pandas.concat([LABELS, LABELS[:1]]), "y: expected one value for each bag"),
    "a row without a bag": (
        FRAME.assign(bag=FRAME["bag"].where(FRAME.index != 3)),
        LABELS,
        "bag: expected a bag for each",
    ),
    "a missing number": (
        FRAME.assign(a=FRAME["a"].where(FRAME.index != 3)),
        LABELS,
        "X: .* NaN in row 3 of .*, column a",
    ),
    "days in a column": (
        FRAME.assign(d=pandas.Timestamp(2025, 1, 1)),
        LABELS,
        "X: expected numbers or words in column 'd'",
    ),
    "no such column": (FRAME.rename(columns={"bag": "Bag"}), LABELS, "bag: expected one of the columns"),
    "no features": (FRAME[["bag"]], LABELS, "X: expected at least one column of numbers"),
    "no rows": (FRAME[:0], LABELS, "X: expected at least one row"),
    "one class": (FRAME, 0 * LABELS, "y: expected at least two classes"),
    "a label of NaN": (FRAME, LABELS.where(LABELS.index != 104), "y: expected a label for each sequence"),
    "groups": (FRAME.groupby("bag"), LABELS, "X: expected a table with the column 'bag'"),
}
KINDS = [AttentionClassifier, DetectorClassifier]


def model(kind):
    return kind(max_steps=10, random_state=0, positive=None)


@pytest.fixture(scope="module", params=KINDS)
def reference(request):
    return request.param, model(request.param).fit(FRAME, LABELS, bag="bag").decision_function(FRAME).to_numpy()


@pytest.mark.filterwarnings("ignore:y. expected one value for each bag, got one for each row; they are equal")
@pytest.mark.parametrize("name", SAME)
def test_a_table_of_the_same_bags_gives_the_same_decisions(reference, name):
    (kind, expected), (table, labels) = reference, SAME[name]
    fitted = model(kind).fit(table, labels, bag="bag")
    found = fitted.decision_function(table)
    values = found.to_numpy() if isinstance(found, pandas.Series) else np.array(found["value"])
    tolerance = 1e-3 if "float32" in name else 1e-7
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)
    assert fitted.score(table, labels) == np.mean((expected > 0) == LABELS)
    # bags as scikit-learn's searches split them
    bags = Sequences.from_table(table, bag="bag")
    again = model(kind).fit(bags, LABELS.to_numpy()).decision_function(bags)
    np.testing.assert_allclose(again, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_are_found_by_name(kind):
    fitted = model(kind).fit(FRAME, LABELS, bag="bag")
    found = fitted.decision_function(FRAME[["c", "bag", "b", "a"]])
    np.testing.assert_allclose(found, fitted.decision_function(FRAME), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_does_not_fit_is_refused_in_one_line(kind, name):
    table, labels, message = REFUSED[name]
    with pytest.raises(ProblemError) as caught:
        model(kind).fit(table, labels, bag="bag")
    assert re.match(message, str(caught.value))
    assert "\n" not in str(caught.value)
