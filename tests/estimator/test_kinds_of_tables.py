"""Tables as people have them: equal results in every kind that can be read, one line for the others."""

import datetime
import decimal
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences

pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")
polars = pytest.importorskip("polars", reason="polars (extra `dev`) is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="Arrow (extra `text`) is not installed")

NUM = 20
BAGS = [f"b{number:02}" for number in range(NUM)]
LABELS = pandas.Series(np.arange(NUM) % 2, index=BAGS)
CLASSIFIERS = [
    lambda **options: AttentionClassifier(max_steps=10, random_state=0, **options),
    lambda **options: DetectorClassifier(2, max_steps=10, random_state=0, **options),
]


def table():
    """Bags of three rows. The numbers are the same in float32."""
    generator = np.random.default_rng(0)
    frame = pandas.DataFrame(generator.integers(-9, 9, (3 * NUM, 2)) / 8.0, columns=["a", "b"])
    frame.insert(0, "bag", np.repeat(BAGS, 3))
    frame.loc[::3, "a"] += 3.0 * LABELS.to_numpy()
    frame["b"] *= 1000
    frame["site"] = generator.choice(["north", "south", "west"], 3 * NUM)
    frame["flag"] = generator.random(3 * NUM) < 0.5
    return frame


FRAME = table()
NUMBERS = FRAME[["bag", "a", "b"]]
WORDS = FRAME[["bag", "a", "b", "site"]]
DUMMIES = pandas.get_dummies(WORDS, columns=["site"])
HOLES = np.arange(3 * NUM) % 7 == 3
BY_NAME = make_column_transformer((StandardScaler(), ["a", "b"]), (OneHotEncoder(), ["site"]))
FILLED = make_pipeline(SimpleImputer(strategy="most_frequent"), StandardScaler())


def named(names, kind=None):
    """The table and the labels with other names of bags, in the same order."""
    names = dict(zip(BAGS, names, strict=True))
    frame = NUMBERS.assign(bag=NUMBERS["bag"].map(names))
    return frame if kind is None else frame.astype({"bag": kind}), LABELS.rename(names)


OF_ROWS = NUMBERS["bag"].map(LABELS)
SHUFFLED = NUMBERS.groupby("bag", sort=False).sample(frac=1, random_state=0)
DAYS = [datetime.datetime(2025, 1, 1) + datetime.timedelta(days=day) for day in range(NUM)]
# name: the table and its labels; every one of them says the same about the same bags
SAME = {
    "pandas": (NUMBERS, LABELS),
    "polars": (polars.from_pandas(NUMBERS), LABELS),
    "Arrow": (pyarrow.Table.from_pandas(NUMBERS), LABELS),
    "float32, exact here": (NUMBERS.astype({"a": np.float32, "b": np.float32}), LABELS),
    "numbers as objects": (NUMBERS.astype({"a": object}), LABELS),
    "a number as the name of a column": (NUMBERS.rename(columns={"a": 1}), LABELS),
    "nullable numbers": (NUMBERS.convert_dtypes(), LABELS),
    "numbers of Arrow in pandas": (NUMBERS.convert_dtypes(dtype_backend="pyarrow"), LABELS),
    "categories as names": named(BAGS, "category"),
    "strings of Arrow as names": named(BAGS, "string[pyarrow]"),
    "days as names": named(DAYS),
    "decimal numbers as names": named([i + 0.5 for i in range(NUM)]),
    "integers as names": named(range(100, 100 + NUM)),
    "small integers as names": named(range(100, 100 + NUM), np.uint8),
    "names that are numbers of rows": named(range(NUM)),
    "rows in another order": (SHUFFLED, LABELS),
    "an index of words": (NUMBERS.set_index(pandas.Index([f"row {i}" for i in range(60)])), LABELS),
    "an index that repeats": (NUMBERS.set_index(np.arange(60) % 7), LABELS),
    "an index of two levels": (NUMBERS.set_index(pandas.MultiIndex.from_product([range(6), range(10)])), LABELS),
    "bags last": (NUMBERS[["a", "b", "bag"]], LABELS),
    "labels in another order": (NUMBERS, LABELS.sample(frac=1, random_state=0)),
    "labels of more bags": (NUMBERS, pandas.concat([LABELS, pandas.Series({"other": 1, "others": 0})])),
    "labels in a dict": (NUMBERS, LABELS.to_dict()),
    "labels in a table": (NUMBERS, LABELS.rename_axis("bag").reset_index(name="y")),
    "labels in a table of polars": (NUMBERS, polars.DataFrame({"bag": BAGS, "y": LABELS.to_numpy()})),
    "labels with the name of groupby": (NUMBERS, OF_ROWS.groupby(NUMBERS["bag"]).first()),
    "labels of the rows": (NUMBERS, OF_ROWS),
    "labels of the rows of bags named by numbers": (named(range(NUM))[0], OF_ROWS),
    "other units": (NUMBERS.assign(b=1e6 * NUMBERS["b"] + 5), LABELS),
    "boolean labels": (NUMBERS, LABELS == 1),
    "nullable labels": (NUMBERS, LABELS.astype("Int64")),
    "categories as labels": (NUMBERS, LABELS.astype("category")),
}


@pytest.fixture(scope="module", params=CLASSIFIERS, ids=["attention", "detectors"])
def reference(request):
    """A classifier, and its decisions on the table of numbers."""
    expected = request.param().fit(NUMBERS, LABELS, bag="bag").decision_function(NUMBERS).to_numpy()
    assert np.ptp(expected) > 0
    return request.param, expected


@pytest.mark.filterwarnings(
    "ignore:y. expected one value for each bag, got one for each row; the values in a bag are equal"
)
@pytest.mark.parametrize("name", SAME)
def test_a_table_of_the_same_bags_gives_the_same_decisions(reference, name):
    (make, expected), (X, labels) = reference, SAME[name]
    fitted = make().fit(X, labels, bag="bag")
    found = fitted.decision_function(X)
    values = found.to_numpy() if isinstance(found, pandas.Series) else np.array(found["value"])
    tolerance = {"float32, exact here": 1e-3, "other units": 1e-7}.get(name, 1e-9)
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)
    assert fitted.score(X, labels) == np.mean((expected > 0) == LABELS)
    # bags as scikit-learn's searches split them
    bags = Sequences.from_table(X, bag="bag")
    again = make().fit(bags, LABELS.to_numpy()).decision_function(bags)
    np.testing.assert_allclose(again, expected, rtol=tolerance, atol=tolerance)


def test_columns_are_found_by_name(reference):
    make, expected = reference
    found = make().fit(NUMBERS, LABELS, bag="bag").decision_function(NUMBERS[["b", "bag", "a"]])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def decisions(make, X, bag="bag", new=None, y=LABELS, net=None):
    """Decisions on the bags in the order of their names."""
    fitted = make(token_net=net).fit(X, y, bag=bag)
    found = fitted.decision_function(X if new is None else new)
    if bag is None:
        return np.asarray(found)
    if isinstance(found, pandas.Series):
        return found.sort_index().to_numpy()
    return polars.DataFrame(found).sort("bag")["value"].to_numpy()


def case(**options):
    return options


def with_column(values, name="flag"):
    return NUMBERS.assign(**{name: values})


ARRAYS = [part.to_numpy() for _, part in NUMBERS.set_index("bag").groupby("bag")]
FLAGS = FRAME["flag"].astype(object)
SITES = FRAME["site"]
NO_WORD = SITES == "west"  # as many columns as with the word, so that nothing is compiled again
EQUAL = {
    "numbers": [
        case(X=NUMBERS),
        case(X=NUMBERS.rename(columns={"bag": 0, "a": 1, "b": 2}), bag=0),
        case(X=NUMBERS, new=NUMBERS[["b", "bag", "a"]].sample(frac=1, random_state=0)),
        case(X=NUMBERS, net=StandardScaler()),
        case(X=NUMBERS, net=StandardScaler().set_output(transform="pandas")),
        case(X=NUMBERS, net=make_column_transformer((StandardScaler(), ["a"]), remainder="passthrough")),
        case(X=NUMBERS, net=FunctionTransformer(lambda frame: sp.csr_array(frame.to_numpy()))),
    ],
    "booleans": [case(X=with_column(x)) for x in (FLAGS, FLAGS.astype("boolean"), FLAGS.astype(float))],
    "booleans, missing": [
        case(X=X, net=FILLED)
        for X in (
            with_column(FLAGS.mask(HOLES, None)),
            with_column(FLAGS.astype("boolean").mask(HOLES)),
            with_column(FLAGS.astype(float).mask(HOLES)),
            polars.from_pandas(with_column(FLAGS.astype("boolean").mask(HOLES))),
        )
    ],
    "words": [
        case(X=WORDS),
        case(X=WORDS.astype({"site": object})),
        case(X=WORDS.astype({"site": "category"})),
        case(X=polars.from_pandas(WORDS)),
        case(X=polars.from_pandas(WORDS).with_columns(polars.col("site").cast(polars.Categorical))),
        case(X=pyarrow.Table.from_pandas(WORDS)),
        # new files need no alignment: other order, other categories of the type
        case(X=WORDS, new=WORDS[["site", "b", "a", "bag"]].astype({"site": "category"})),
        case(X=DUMMIES[["bag", "site_north", "site_south", "site_west", "a", "b"]]),
    ],
    "words, missing": [
        case(X=X)
        for X in (
            with_column(SITES.mask(NO_WORD, None), "site"),
            with_column(SITES.astype(object).mask(NO_WORD, np.nan), "site"),
            with_column(SITES.astype("category").mask(NO_WORD), "site"),
            polars.from_pandas(with_column(SITES.mask(NO_WORD, None), "site")),
        )
    ],
    "words by a transformer": [
        case(X=X, net=BY_NAME) for X in (WORDS, polars.from_pandas(WORDS), pyarrow.Table.from_pandas(WORDS))
    ],
    "arrays": [
        case(X=X, bag=None, y=LABELS.to_numpy()) for X in (ARRAYS, [array[None] for array in ARRAYS], np.array(ARRAYS))
    ],
}


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.parametrize("kind", EQUAL)
def test_every_kind_of_table_gives_equal_decisions(kind, make):
    first, *others = [decisions(make, **options) for options in EQUAL[kind]]
    assert np.isfinite(first).all()
    assert np.ptp(first) > 0
    for number, other in enumerate(others, start=1):
        np.testing.assert_allclose(other, first, rtol=1e-9, atol=1e-12, err_msg=f"{kind} {number}")


REFUSED = [
    (case(X=NUMBERS, y=LABELS.to_numpy()), "^y: expected values that name their bags"),
    (case(X=NUMBERS, y=LABELS.rename("other {}".format)), "^y: expected a value for each bag, got none for"),
    (case(X=NUMBERS, y=pandas.Series(np.arange(60) % 2)), "^y: .* with several in bag b00; reduce them"),
    (case(X=NUMBERS, y=pandas.concat([LABELS, LABELS[:1]])), "^y: expected one value for each bag"),
    (case(X=NUMBERS, y=0 * LABELS), "^y: expected at least two classes"),
    *(
        (case(X=NUMBERS, y=y.where(LABELS.index != "b04")), "^y: expected a label for each sequence, got .* b04$")
        for y in (LABELS, LABELS.map({0: "a", 1: "b"}), LABELS.convert_dtypes())
    ),
    (case(X=NUMBERS.assign(bag=NUMBERS["bag"].where(~HOLES))), "^bag: expected a bag in each"),
    (case(X=NUMBERS.assign(a=NUMBERS["a"].where(~HOLES))), "^X: .* NaN in row 3 of .*, column a"),
    (case(X=NUMBERS.rename(columns={"bag": "Bag"})), "^bag: expected one of the columns"),
    (case(X=NUMBERS[["bag"]]), "^X: expected at least one column of numbers"),
    (case(X=NUMBERS[:0]), "^X: expected at least one row"),
    (case(X=NUMBERS.groupby("bag")), "^X: expected a table with the column 'bag'"),
    (
        case(X=pandas.concat([NUMBERS, NUMBERS[["a"]]], axis=1)),
        "X: expected different column names, got 'a' 2 times",
    ),
    (
        case(X=NUMBERS.set_axis(pandas.MultiIndex.from_product([["x"], ["bag", "a", "b"]]), axis=1), bag=("x", "bag")),
        "X: expected column names in one row, got 2 rows",
    ),
    (case(X=NUMBERS, bag=["bag", "a"]), r"bag: expected the name of one column .* got \['bag', 'a'\]"),
    (case(X=NUMBERS.set_index("bag")), r"bag: expected .* got 'bag'; it is in the index: X.reset_index\('bag'\)"),
    (case(X=with_column(FLAGS.mask(HOLES, None))), "got NaN in row 3 of sequence b01, column flag; fill"),
    (case(X=with_column(FLAGS.astype("boolean").mask(HOLES))), "got NaN in row 3 of sequence b01, column flag; fill"),
    (
        case(X=WORDS.assign(a=WORDS["a"].mask(HOLES))),
        r"column a; fill .* token_net=make_column_.*\(\(OneHotEncoder\(.*\), \['site'\]\), remainder=SimpleImputer",
    ),
    (case(X=with_column(pandas.Timestamp("2020-01-01"))), "numbers or words in column 'flag', got Datetime"),
    (case(X=with_column([1, "x"] * 30)), "numbers or words in column 'flag', got int, str"),
    (case(X=with_column([[1, 2]] * 60)), "numbers or words in column 'flag', got list"),
    (case(X=with_column([decimal.Decimal(1)] * 60)), "numbers or words in column 'flag', got Decimal"),
    (case(X=with_column(1j)), "numbers or words in column 'flag', got complex128"),
    (case(X=NUMBERS.astype({"a": pandas.SparseDtype(float)})), "in column 'a', got Sparse"),
    (
        case(X=with_column([str(x) for x in range(59)] + ["n/a"])),
        "numbers in column 'flag', got numbers as words and 'n/a'",
    ),
    (
        case(X=pandas.concat([NUMBERS] * 3).assign(note=[f"note {x}" for x in range(180)])),
        r"at most 100 words in column 'note', got 180; drop it, or name a token_net, such as make_.*TfidfVectorizer",
    ),
    (case(X=[sp.csr_array(array) for array in ARRAYS], bag=None), "X: expected dense arrays, got sparse ones"),
    (case(X=dict(zip(BAGS, ARRAYS, strict=True)), bag=None), r"got a dict; write list\(X.values\(\)\)"),
    (
        case(X=[np.array(ARRAYS[:2])] * NUM, bag=None),
        r"a matrix \(T_i, d\) for each sequence, got an array of shape \(2, 3, 2\)",
    ),
    (case(X=polars.from_pandas(NUMBERS).lazy()), "expected a table .*, got LazyFrame"),
    (case(X=WORDS, new=NUMBERS), "got a table with missing site"),
    (case(X=WORDS, new=WORDS.assign(site=1)), "expected words in column 'site', as in the fit, got numbers"),
    (case(X=WORDS, new=WORDS.astype({"a": str})), "expected numbers in column 'a', as in the fit, got words"),
    (case(X=WORDS, net=StandardScaler()), "token_net: could not convert string to float"),
    (case(X=WORDS, net=make_column_transformer((OneHotEncoder(), ["none"]))), "token_net: .*column"),
    (
        case(X=WORDS, net=make_column_transformer((StandardScaler(), ["a"]), remainder="passthrough")),
        r"token_net: could not convert string to float.*; encode the words, as make_.*, \['site'\]\), remainder=",
    ),
]


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_other_tables_are_one_clear_line(number, make):
    options, message = REFUSED[number]
    with pytest.raises(ProblemError, match=message) as raised:
        decisions(make, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_words_that_the_fit_had_not_are_named_whatever_maps_them(make):
    net = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["site"]), remainder="passthrough")
    fitted = make(token_net=net).fit(WORDS, LABELS, bag="bag")
    new = WORDS.assign(site=WORDS["site"].str.upper())
    for X in (new, polars.from_pandas(new), Sequences.from_table(new, bag="bag")):
        with pytest.warns(RuntimeWarning, match="X: column 'site' has NORTH, SOUTH, WEST, unlike in the fit"):
            fitted.predict(X)
    texts = WORDS.assign(site=[f"{word} {row}" for row, word in enumerate(WORDS["site"])])
    net = make_column_transformer((TfidfVectorizer(), "site"), remainder="passthrough")
    fitted = make(token_net=net).fit(texts, LABELS, bag="bag")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # texts differ from those of the fit; words of one bag are words of the fit
        fitted.predict(texts.assign(site=texts["site"] + " again"))
        make().fit(WORDS, LABELS, bag="bag").predict(Sequences.from_table(WORDS, bag="bag")[:2])


def test_words_that_the_fit_had_not_are_named():
    fitted = CLASSIFIERS[0]().fit(WORDS, LABELS, bag="bag")
    assert list(fitted.feature_names_in_) == ["a", "b", "site"]
    names = ["site_north", "site_south", "site_west", "a", "b"]
    assert list(fitted.token_net_.get_feature_names_out()) == names
    assert fitted.prompt_.shape[-1] == len(names)
    new = WORDS.assign(site=WORDS["site"].replace("west", "east").mask(HOLES))
    with pytest.warns(RuntimeWarning, match="X: column 'site' has a missing entry, east, unlike in the fit"):
        found = fitted.decision_function(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = pickle.loads(pickle.dumps(fitted)).decision_function(WORDS)
    same = ~(new["site"] != WORDS["site"]).groupby(WORDS["bag"]).any()
    np.testing.assert_array_equal(found[same], expected[same])
    # nor is a missing entry a word for a token_net that the user makes
    seen = []
    net = make_column_transformer((FunctionTransformer(lambda part: seen.append(part) or part[["a"]]), ["a", "site"]))
    CLASSIFIERS[0](token_net=net).fit(new, LABELS, bag="bag")
    assert {part["site"].isna().sum() for part in seen} == {HOLES.sum()}
    # a small file may have no word at all
    with pytest.warns(RuntimeWarning, match="a missing entry"):
        assert np.isfinite(fitted.decision_function(WORDS[:3].assign(site=None))).all()


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_a_column_that_alone_determines_the_label_is_named(make):
    label = WORDS["bag"].map(LABELS)
    words, number = label.map({0: "none", 1: "sepsis"}), WORDS["bag"].str[1:].astype(float)
    for leak in (words, label * 2.0, words.where(label == 1)):
        with pytest.warns(RuntimeWarning, match="X: column 'leak' is constant in each bag and alone determines"):
            make().fit(WORDS.assign(leak=leak), LABELS, bag="bag")
    varies = label.where(np.arange(len(WORDS)) != 6, 1)
    other = (number >= 3).astype(float)  # constant in each bag
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        make().fit(WORDS.assign(varies=varies, number=number, other=other), LABELS, bag="bag")


def test_a_search_splits_bags_with_words():
    bags, labels = Sequences.from_table(WORDS.assign(label=WORDS["bag"].map(LABELS)), bag="bag", target="label")
    assert bags.columns == ("a", "b", "site")
    assert bags.words == {"site": ("north", "south", "west")}
    fitted = CLASSIFIERS[0]().fit(WORDS, LABELS, bag="bag")
    np.testing.assert_array_equal(
        CLASSIFIERS[0]().fit(bags, labels).decision_function(bags), fitted.decision_function(WORDS)
    )
    assert np.isfinite(cross_val_score(CLASSIFIERS[1](), bags, labels, cv=2)).all()
    search = GridSearchCV(
        CLASSIFIERS[0](token_net=BY_NAME), {"token_net__standardscaler__with_mean": [True, False]}, cv=2
    )
    assert np.isfinite(search.fit(bags, labels).cv_results_["mean_test_score"]).all()
    with pytest.raises(ProblemError, match="words: expected some of the columns"):
        Sequences(bags.table, bags.ids, bags.offsets, words=bags.words)


def test_a_transformer_gets_a_frame_of_the_library_of_the_table():
    seen = []

    def look(frame):
        seen.append((type(frame), list(frame.columns)))
        return frame[["b", "a"]]

    for X, kind in ((WORDS, pandas.DataFrame), (polars.from_pandas(WORDS), polars.DataFrame)):
        decisions(CLASSIFIERS[0], X, net=FunctionTransformer(look))
        assert {*map(str, seen)} == {str((kind, ["a", "b", "site"]))}
        seen.clear()
    texts = with_column([f"{'good' if i % 3 else 'bad'} day" for i in range(60)], "note")
    net = make_column_transformer((TfidfVectorizer(), "note"), remainder="passthrough")
    assert np.isfinite(decisions(CLASSIFIERS[0], texts, net=net)).all()


def test_a_sparse_output_that_does_not_fit_into_the_memory_is_named(monkeypatch):
    monkeypatch.setattr("attsvm.estimator.token_net.free_memory", lambda: 900)
    with pytest.raises(ProblemError, match=r"a sparse one that needs .* as an array"):
        decisions(CLASSIFIERS[0], NUMBERS, net=FunctionTransformer(lambda frame: sp.csr_array(frame.to_numpy())))


def test_a_module_takes_no_words():
    torch = pytest.importorskip("torch")
    with pytest.raises(ProblemError, match="a transformer for the words in column 'site', got a module"):
        decisions(CLASSIFIERS[0], WORDS, net=torch.nn.Linear(3, 2))
