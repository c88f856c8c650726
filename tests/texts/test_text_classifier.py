"""The classifier of texts: scikit-learn's conventions, its outputs word by word, and the parts that it chooses."""

import pickle

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from attsvm import ProblemError, TextClassifier
from attsvm.texts.combination import TextLabels, choose, folds
from attsvm.texts.ngrams import learn_features, outputs, regression, words_and_pairs

FILLER = [*"abcdefghijk", "the", "and", "film", "of", "it", "was", "this"]
TELLING = ["dreadful", "splendid", "middling"]


def reviews(number, classes=2, seed=0):
    """Filler with one telling word a text, at a random place, and the labels."""
    generator = np.random.default_rng(seed)
    labels = np.arange(number) % classes
    texts = [list(generator.choice(FILLER, generator.integers(6, 12))) for _ in labels]
    for text, label in zip(texts, labels, strict=True):
        text.insert(generator.integers(len(text)), TELLING[label])
    return [" ".join(text).capitalize() + "." for text in texts], labels


def short(parts="attention", **changes):
    return TextClassifier(parts, **{"max_steps": 100, "min_documents": 2, "dim": 10, "random_state": 0} | changes)


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    texts, labels = reviews(90, request.param)
    return short("both").fit(texts, labels)


def test_every_form_of_texts_gives_the_same_classifier():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    texts, labels = reviews(60)
    names = np.array(["bad", "good"])[labels]
    first = short().fit(texts, names)
    expected = first.decision_function(texts)
    assert first.predict(texts).tolist() == np.where(expected > 0, "good", "bad").tolist()
    forms = (tuple, np.array, lambda x: np.array(x, dtype=object), pandas.Series, polars.Series)
    for form in forms:
        np.testing.assert_array_equal(first.decision_function(form(texts)), expected)
    again = short().fit(pandas.Series(texts, index=range(5, 65)), pandas.Series(names, index=range(5, 65)))
    np.testing.assert_array_equal(again.decision_function(texts), expected)
    encoded = first.learn_encoder(texts)
    np.testing.assert_array_equal(short().fit(encoded, names).decision_function(encoded), expected)
    with pytest.raises(ProblemError, match="X: expected texts encoded by this classifier"):
        first.decision_function(encoded)


def test_meta_estimators_clone_search_validate_and_pickle(fitted):
    texts, labels = reviews(60)
    assert clone(fitted).get_params() == fitted.get_params()
    search = GridSearchCV(short(max_steps=40), {"dim": [2, 5]}, cv=2, error_score="raise").fit(texts, labels)
    assert search.best_params_["dim"] in (2, 5)
    assert len(cross_val_score(short(max_steps=40), np.array(texts), labels, cv=2, error_score="raise")) == 2
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, short(max_steps=40)).fit(texts, labels)
    assert pipeline.predict_proba(texts).shape == (60, 2)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(texts), fitted.decision_function(texts))
    own = short(tokenizer=str.split, max_steps=40).fit(texts, labels)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(own)).decision_function(texts), own.decision_function(texts)
    )


def test_the_output_is_the_sum_of_its_contributions(fitted):
    """Against attention, head, TF-IDF and coefficients taken apart by hand."""
    classes = len(fitted.classes_)
    texts = [*reviews(8, classes, seed=1)[0], "", "never seen", "splendid " * 500 + "film"]
    decision, found = fitted.decision_function(texts), fitted.contributions(texts)
    np.testing.assert_allclose([one.decision for one in found], decision, rtol=1e-10, atol=1e-10)
    of_attention, of_ngrams = fitted.choice_.weights
    assert min(of_attention, of_ngrams) > 0
    vectors, part, ngrams = fitted.encoder_, fitted.attention_, fitted.ngrams_
    for text, one, attention, words in zip(texts, found, fitted.attention(texts), fitted.words(texts), strict=True):
        assert list(one.words) == words
        assert [text[begin:end].lower() for begin, end in one.places] == words
        np.testing.assert_array_equal(one.attention, attention)
        tokens = vectors.table[[([*vectors.vocabulary, ""]).index(word) for word in words]].astype(float)
        share = np.exp(log_softmax(tokens @ part.prompt_))
        np.testing.assert_allclose(attention, share, rtol=1e-9)
        alone = tokens @ part.head_.T + part.intercept_
        expected = of_attention * share[:, None] * alone
        np.testing.assert_allclose(one.of_words.reshape(expected.shape), expected, rtol=1e-9, atol=1e-12)
        counts = {term: words_and_pairs(text.lower().replace(".", "").split()).count(term) for term in one.ngrams}
        places = [ngrams.features.terms.index(term) for term in one.ngrams]
        weights = np.array([1 + np.log(count) for count in counts.values()]) * ngrams.features.idf[places]
        weights /= max(np.linalg.norm(weights), 1e-300)
        expected = of_ngrams * weights[:, None] * ngrams.coef[:, places].T
        np.testing.assert_allclose(one.of_ngrams.reshape(expected.shape), expected, rtol=1e-9, atol=1e-12)
    probability = fitted.predict_proba(texts)
    logits = np.stack([0 * decision, decision], axis=1) if classes == 2 else decision
    np.testing.assert_allclose(np.log(probability), log_softmax(logits, axis=1), atol=1e-12)
    assert (found[-3].words, found[-3].ngrams) == (("",), ())
    largest = [one.words[int(one.attention.argmax())] for one in found]
    assert fitted.selected(texts).tolist() == largest


def test_the_report_has_the_parts_alone(fitted):
    texts, labels = reviews(40, len(fitted.classes_), seed=2)
    report = fitted.report(texts, labels)
    assert report.accuracy == fitted.score(texts, labels)
    assert report.attention.accuracy == fitted.attention_.score(fitted.encode(texts).sequences, labels)
    alone = fitted.ngrams_.decision(fitted.encode(texts).documents)
    predicted = (alone[:, 0] > 0).astype(int) if alone.shape[1] == 1 else alone.argmax(axis=1)
    assert report.ngrams.accuracy == np.mean(predicted == labels)
    assert report.attention_adds == report.accuracy - report.ngrams.accuracy
    assert f"of n-grams alone {report.ngrams.accuracy:.3g}" in repr(report)
    without = short(max_steps=20).fit(texts, labels)
    assert without.ngrams_ is None
    assert without.report(texts, labels).attention_adds is None
    with pytest.raises(ProblemError, match=r"y: expected one of the labels 0, 1.*, got 7"):
        fitted.report(texts[:2], [0, 7])


def test_n_grams_are_those_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    documents = [text.lower().rstrip(".").split() for text in reviews(50)[0]]
    features = learn_features(documents, 3)
    other = TfidfVectorizer(analyzer=words_and_pairs, min_df=3, sublinear_tf=True).fit(documents)
    assert list(features.terms) == other.get_feature_names_out().tolist()
    np.testing.assert_allclose(features.matrix(documents).toarray(), other.transform(documents).toarray())
    assert learn_features([[], []], 1) is None
    assert learn_features(documents, 51) is None


def test_weights_are_those_of_logistic_regression_on_the_outputs():
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 2, 400)
    decisions = (2 * numbers - 1) * [[0.8], [0.4]] + generator.normal(size=(2, 400))
    found = choose("both", decisions[:, :, None], TextLabels(numbers, np.ones(400)))
    other = LogisticRegression(fit_intercept=False, tol=1e-10).fit(decisions.T, numbers)
    np.testing.assert_allclose(found.weights, other.coef_[0], rtol=1e-3)
    assert found.parts == "both"
    # a part that points the other way gets the weight 0, not a negative one
    assert (
        choose("both", decisions[:, :, None] * [[[1.0]], [[-1.0]]], TextLabels(numbers, np.ones(400))).weights[1] == 0
    )


def test_a_text_of_weight_zero_is_left_out():
    texts, labels = reviews(60)
    weights = np.where(np.arange(60) % 5 == 0, 0.0, 3.0)  # equal ones are no weights
    kept = np.flatnonzero(weights)
    without = [texts[row] for row in kept]
    expected = short("both").fit(without, labels[kept])
    for given, of_weight in ((texts, weights), (expected.encode(without), np.full(len(kept), 0.5))):
        found = short("both").fit(given, labels if given is texts else labels[kept], sample_weight=of_weight)
        assert found.encoder_.vocabulary == expected.encoder_.vocabulary
        assert np.array_equal(found.decision_function(texts), expected.decision_function(texts))
    encoded = short().learn_encoder(texts)
    part = short().fit(encoded, labels, sample_weight=weights)
    assert np.array_equal(
        part.decision_function(encoded), short().fit(encoded[kept], labels[kept]).decision_function(encoded)
    )
    with pytest.raises(ValueError, match="at least one"):
        short().fit(texts, labels, sample_weight=np.zeros(60))


def test_integer_weights_are_repeated_texts():
    """Of n-grams and of the weights of parts; a penalty that depends on the number of texts is the same."""
    generator = np.random.default_rng(0)
    texts, labels = reviews(60, 3)
    labels = np.where(generator.random(60) < 0.2, generator.integers(0, 3, 60), labels)
    weights = generator.integers(1, 4, 60)
    documents = [text.lower().rstrip(".").split() for text in texts]
    matrix = learn_features(documents, 2).matrix(documents)
    again = np.repeat(np.arange(60), weights)
    for classes in (labels, np.minimum(labels, 1)):
        once, repeated = TextLabels(classes, weights), TextLabels(classes[again], np.ones(len(again)))
        found = regression(matrix, once, 5.0)
        expected = regression(matrix[again], repeated, 5.0 * 60 / len(again))
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=2e-3)
        decision = outputs(found, matrix)
        assert once.losses(decision).mean() == pytest.approx(repeated.losses(decision[again]).mean(), rel=1e-12)


def test_weights_move_attention_towards_the_texts_that_have_them():
    texts, labels = reviews(80)
    wrong = np.where(np.arange(80) < 40, 1 - labels, labels)  # the first half has the labels of the other class
    for weights, expected in ((np.repeat([9.0, 1.0], 40), 0.0), (np.repeat([1.0, 9.0], 40), 1.0)):
        found = short(learning_rate=0.02).fit(texts, wrong, weights)
        assert abs(found.score(texts, labels) - expected) < 0.2


def test_held_out_texts_are_never_trained_on_and_small_classes_are_kept():
    numbers = np.array([0] * 20 + [1] * 30 + [2] * 3)
    divided = folds(numbers, 0)
    held = np.concatenate([rows for _, rows in divided])
    assert sorted(held) == list(range(50))
    for train, rows in divided:
        assert sorted([*train, *rows]) == list(range(53))
        assert {0, 1, 2} == set(numbers[train])
    large = folds(np.arange(12_000) % 2, 0)
    assert [len(rows) for _, rows in large] == [3000]
    assert folds(np.array([0] * 20 + [1]), 0) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["a", None], "X: expected a text at position 1, got a missing value"),
        (["a", "b", float("nan")], "X: expected a text at position 2, got a missing value"),
        (["a", 3], "X: expected a text at position 1, got int"),
        ([["a"], "b"], "X: expected a text at position 0, got list"),
        ("a text", "X: expected a list, array or series of texts, got a str"),
        (np.array([["a"], ["b"]]), r"X: expected a list, array or series of texts, got shape \(2, 1\)"),
        ([], "X: expected at least one text, got none"),
    ],
)
def test_what_is_no_text_is_named_by_its_position(given, said):
    with pytest.raises(ProblemError, match=said):
        short().fit(given, [0, 1])


def test_what_does_not_fit_is_named():
    texts, labels = reviews(20)
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ProblemError, match="X: expected a text at position 1, got a missing value"):
        short().fit(pandas.Series(["a", None]), [0, 1])
    with pytest.raises(ProblemError, match=r"X: expected a list, array or series of texts, got shape \(20, 1\)"):
        short().fit(pandas.DataFrame({"text": texts}), labels)
    for changes, said in (
        ({"parts": "all"}, 'parts: expected "auto", "attention" or "both", got \'all\''),
        ({"dim": 0}, "dim: expected an integer >= 1, got 0"),
        ({"p": 1.5, "optimizer": "adam"}, "p: expected none for the optimiser adam, got 1.5"),
        ({"min_documents": 30}, "expected at least two words that occur in at least 30 of 20 texts, got 0"),
        ({"random_state": -1}, "random_state: expected"),
    ):
        with pytest.raises(ProblemError, match=said):
            short(**changes).fit(texts, labels)
    for y, said in (
        (None, "requires y to be passed"),
        (labels[:3], "y: expected 20 labels"),
        ([1] * 20, "two classes"),
    ):
        with pytest.raises(ProblemError, match=said):
            short().fit(texts, y)


def phrases(number):
    """Texts that all have "not" and "good"; the words are neighbours in those of one class."""
    generator = np.random.default_rng(0)
    labels = np.arange(number) % 2
    texts = []
    for label in labels:
        text = list(generator.choice(FILLER, 8))
        first, second = sorted(generator.choice(np.arange(1, 8), 2, replace=False))
        text[second:second] = [] if label else ["good"]
        text[first:first] = ["not", "good"] if label else ["not"]
        texts.append(" ".join(text))
    return texts, labels


def long_reviews(number):
    """Texts of 6 to 120 words, of which one decides: the longer the text, the smaller its weight among the n-grams."""
    generator = np.random.default_rng(0)
    labels = np.arange(number) % 2
    texts = [list(generator.choice(FILLER, generator.integers(6, 120))) for _ in labels]
    for text, label in zip(texts, labels, strict=True):
        text.insert(generator.integers(len(text)), TELLING[label])
    return [" ".join(text) for text in texts], labels


def test_n_grams_are_chosen_where_the_order_of_words_decides():
    texts, labels = phrases(160)
    choice = short("auto", max_steps=60).fit(texts, labels).choice_
    assert choice.parts == "ngrams"
    assert choice.weights[0] == 0
    assert choice.losses["ngrams"] < 0.2 < 0.6 < choice.losses["attention"]
    assert choice.num_texts == 160


def test_attention_is_chosen_where_one_word_of_many_decides():
    texts, labels = long_reviews(160)
    fitted = short("auto", dim=200, learning_rate=0.02, max_steps=100).fit(texts, labels)
    assert fitted.choice_.parts == "attention"
    assert fitted.choice_.weights[1] == 0
    assert fitted.choice_.losses["attention"] < 0.1 < fitted.choice_.losses["ngrams"]
    assert np.mean(np.isin(fitted.selected(texts), TELLING)) > 0.4
    alone = fitted.choice_.weights[0] * fitted.attention_.decision_function(fitted.encode(texts).sequences)
    np.testing.assert_allclose(fitted.decision_function(texts), alone, rtol=1e-12)
