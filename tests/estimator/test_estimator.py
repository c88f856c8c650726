"""The estimator: scikit-learn's conventions, every form of input, its gradient, and what it finds in bags of digits."""

import pickle

import jax
import numpy as np
import optax
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError, Status
from attsvm.datasets import Sequences, digit_bags
from attsvm.estimator import MarginReport, batches
from attsvm.estimator.batches import gather
from attsvm.estimator.coordinates import Coordinates
from attsvm.estimator.prompt import objective_gradient

pytestmark = pytest.mark.slow

DOES_NOT_APPLY = {
    "check_sample_weight_equivalence_on_dense_data": (
        "n of the penalty, and centre and scale of the tokens, count copies; weights count in the loss only"
    )
}


def bags(n=120, T=7, d=4, classes=2, seed=0):
    """Ragged bags of noise in which one token tells the class, and the place of that token."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    arrays = [generator.normal(size=(1 + generator.integers(T), d)) for _ in range(n)]
    places = np.array([generator.integers(len(array)) for array in arrays])
    for array, place, label in zip(arrays, places, labels, strict=True):
        array[place] = 4 * np.eye(d)[0] + 4 * np.eye(d)[1 + label]
    return arrays, labels, places


def padded(arrays, T, filler):
    """Tokens with padding at the beginning, and their mask."""
    tokens, mask = np.full((len(arrays), T, arrays[0].shape[1]), filler), np.zeros((len(arrays), T), dtype=bool)
    for i, array in enumerate(arrays):
        tokens[i, T - len(array) :], mask[i, T - len(array) :] = array, True
    return tokens, mask


def short(**changes):
    return AttentionClassifier(**{"max_steps": 150, "random_state": 0, "ensemble": False} | changes)


def by_definition(classifier, array):
    """Attention and output of one sequence."""
    weights = np.exp(array @ classifier.prompt_)
    weights /= weights.sum()
    return weights, classifier.head_ @ (array.T @ weights) + classifier.intercept_


def test_scikit_learn_finds_its_conventions_kept(monkeypatch):
    monkeypatch.setattr(batches, "FEWEST", 512)  # data of all sizes share their compiled steps
    results = check_estimator(
        AttentionClassifier(max_steps=25, learning_rate=0.1), expected_failed_checks=DOES_NOT_APPLY, on_skip=None
    )
    assert {result["check_name"] for result in results if result["status"] == "xfail"} == set(DOES_NOT_APPLY)


@pytest.mark.parametrize("classes", [2, 3])
def test_outputs_attention_and_selection_are_those_of_the_definition(classes):
    arrays, labels, _ = bags(classes=classes)
    names = np.array(["no", "yes", "perhaps"])
    classifier = short().fit(arrays, names[labels])
    expected = [by_definition(classifier, array) for array in arrays]
    outputs = np.array([output for _, output in expected])
    if classes == 2:
        outputs = np.column_stack([np.zeros(len(arrays)), outputs])
    np.testing.assert_allclose(
        classifier.decision_function(arrays), outputs[:, 1] if classes == 2 else outputs, rtol=1e-9, atol=1e-12
    )
    probability = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(classifier.predict_proba(arrays), probability, rtol=1e-9)
    assert (classifier.predict(arrays) == classifier.classes_[probability.argmax(axis=1)]).all()
    for found, (weights, _) in zip(classifier.attention(arrays), expected, strict=True):
        np.testing.assert_allclose(found, weights, rtol=1e-9)
    assert classifier.selected(arrays).tolist() == [weights.argmax() for weights, _ in expected]


@pytest.mark.parametrize("classes", [2, 4])
def test_it_learns_the_token_that_tells_the_class(classes):
    arrays, labels, places = bags(n=400, T=9, d=6, classes=classes)
    classifier = short(alpha=1.0, max_steps=800).fit(arrays[:300], labels[:300])
    assert classifier.score(arrays[300:], labels[300:]) > 0.95
    assert (classifier.selected(arrays[300:]) == places[300:]).mean() > 0.95


def test_ragged_padded_and_numbered_input_give_the_same_classifier():
    arrays, labels, _ = bags()
    tokens, mask = padded(arrays, T=12, filler=np.nan)
    shared = np.concatenate(arrays)
    order = np.random.default_rng(0).permutation(len(shared))
    numbered = Sequences(shared[order], np.argsort(order), np.cumsum([0, *map(len, arrays)]))
    ragged = short().fit(arrays, labels)
    attention = ragged.attention(arrays)
    for X in (Sequences.from_padded(tokens, mask), numbered):
        other = short().fit(X, labels)
        np.testing.assert_allclose(other.prompt_, ragged.prompt_, rtol=1e-7)
        np.testing.assert_allclose(other.decision_function(X), ragged.decision_function(arrays), rtol=1e-7, atol=1e-9)
        assert (other.selected(X) == ragged.selected(arrays)).all()
        np.testing.assert_allclose(ragged.attention(X), np.concatenate(attention), rtol=1e-12)
    of_one_length = np.array([array for array in arrays if len(array) == 3])
    found = ragged.attention(of_one_length)
    assert found.shape == (len(of_one_length), 3)
    np.testing.assert_allclose(found.ravel(), np.concatenate(ragged.attention(list(of_one_length))), rtol=1e-12)
    assert (ragged.selected(of_one_length) == ragged.selected(list(of_one_length))).all()


def test_the_order_of_tokens_does_not_matter():
    arrays, labels, _ = bags()
    shuffled = [np.random.default_rng(i).permutation(array) for i, array in enumerate(arrays)]
    one, other = short().fit(arrays, labels), short().fit(shuffled, labels)
    np.testing.assert_allclose(one.prompt_, other.prompt_, rtol=1e-6)
    np.testing.assert_allclose(one.decision_function(shuffled), one.decision_function(arrays), rtol=1e-9, atol=1e-12)


def test_shift_and_scale_of_the_tokens_change_no_prediction():
    arrays, labels, _ = bags()
    one = short().fit(arrays, labels)
    for moved in ([100 + 1e-3 * array for array in arrays], [1e200 * array for array in arrays]):
        other = short().fit(moved, labels)
        np.testing.assert_allclose(other.decision_function(moved), one.decision_function(arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_that_of_finite_differences(classes):
    generator = np.random.default_rng(0)
    d, C = 3, 1 if classes == 2 else classes
    # a token may occur twice in a sequence, and in several
    offsets = np.cumsum([0, 3, 1, 8, 21, 16, 70])
    sequences = Sequences(generator.normal(size=(90, d)), generator.integers(90, size=offsets[-1]), offsets)
    b = len(sequences)
    labels = generator.choice([-1.0, 1.0], b) if classes == 2 else generator.integers(classes, size=b).astype(float)
    weights, alpha = generator.dirichlet(np.ones(b)), 0.3
    batch = gather(sequences, labels, b * weights, np.zeros(d), 1.0, 70.0)

    def objective(p, V, offset):
        value = alpha / 2 * (p @ p + (V * V).sum())
        for i, tokens in enumerate(sequences):
            attention = np.exp(tokens @ p)
            outputs = V @ (tokens.T @ (attention / attention.sum())) + offset
            if classes == 2:
                value += weights[i] * np.log1p(np.exp(-labels[i] * outputs[0]))
            else:
                value += weights[i] * (np.log(np.exp(outputs).sum()) - outputs[int(labels[i])])
        return value

    point = [generator.normal(size=d), generator.normal(size=(C, d)), generator.normal(size=C)]
    with jax.enable_x64(True):
        value, gradient = jax.jit(objective_gradient)(dict(zip("pVb", point, strict=True)), batch, alpha)
        found = [np.asarray(gradient[name]) for name in "pVb"]
    np.testing.assert_allclose(value, objective(*point), rtol=1e-12)
    for k, array in enumerate(point):
        for place in np.ndindex(array.shape):
            moved = []
            for h in (1e-6, -1e-6):
                changed = [x.copy() for x in point]
                changed[k][place] += h
                moved.append(objective(*changed))
            np.testing.assert_allclose(found[k][place], (moved[0] - moved[1]) / 2e-6, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_a_bag_that_repeats_its_tokens_changes_no_fit(kind, monkeypatch):
    # neither attention nor a maximum depends on the number of copies; centre and scale do
    monkeypatch.setattr(Coordinates, "of", lambda sequences, by_column: Coordinates(np.zeros(sequences.dim), 1.0))
    arrays, labels, _ = bags()
    long = [np.tile(array, (20_000, 1)) if i == 5 else array for i, array in enumerate(arrays)]
    one, other = (
        kind(max_steps=50, batch_size=200, random_state=0).fit(Sequences.from_arrays(X), labels, validation=0.1)
        for X in (arrays, long)
    )
    np.testing.assert_allclose(other.decision_function(arrays), one.decision_function(arrays), rtol=1e-9, atol=1e-12)
    assert other.history_["validation_loss"] == pytest.approx(one.history_["validation_loss"], rel=1e-9)


def test_the_size_of_a_batch_grows_with_its_tokens_and_not_with_its_longest_sequence():
    sequences = Sequences.from_arrays([np.ones((length, 2)) for length in [*range(1, 100), 5000]])
    batch = gather(sequences, np.ones(100), np.ones(100), np.zeros(2), 1.0, 50.0)
    assert len(batch.places) <= 2 * len(sequences.ids)
    assert sum(array.size for array in batch) < 10 * len(sequences.ids)


def test_pipelines_grid_search_clones_and_pickles_work():
    arrays, labels, _ = bags()
    doubled = FunctionTransformer(lambda X: [np.hstack([array, array**2]) for array in X])
    pipeline = make_pipeline(doubled, short(max_steps=50))
    search = GridSearchCV(pipeline, {"attentionclassifier__alpha": [0.1, 10.0]}, cv=3, error_score="raise")
    search.fit(arrays, labels)
    assert search.best_estimator_[-1].n_features_in_ == 8
    assert search.score(arrays, labels) == search.best_estimator_.score(arrays, labels) > 0.7

    of_sequences = GridSearchCV(short(max_steps=50), {"p": [1.5, 2.0]}, cv=3, error_score="raise")
    of_sequences.fit(Sequences.from_arrays(arrays), labels)

    classifier = short(alpha=0.5).fit(arrays, labels)
    copy = pickle.loads(pickle.dumps(classifier))
    assert (copy.decision_function(arrays) == classifier.decision_function(arrays)).all()
    assert repr(copy.margin_report(arrays)) == repr(classifier.margin_report(arrays))
    assert (copy.partial_fit(arrays, labels).prompt_ == classifier.partial_fit(arrays, labels).prompt_).all()
    fresh = clone(classifier)
    assert fresh.get_params() == classifier.get_params()
    assert not hasattr(fresh, "prompt_")


def test_any_optimiser_trains_and_seeds_repeat():
    arrays, labels, _ = bags()
    for changes in (
        {"optimizer": "mirror_descent", "p": 1.5},
        {"optimizer": "gradient_descent"},
        {"optimizer": "normalized_gradient_descent", "learning_rate": 0.05},
        {"optimizer": optax.sgd(0.5, momentum=0.9)},
    ):
        one, other = short(**changes).fit(arrays, labels), short(**changes).fit(arrays, labels)
        assert one.score(arrays, labels) > 0.9, changes
        assert (one.prompt_ == other.prompt_).all()


def test_partial_fit_and_warm_start_go_on():
    arrays, labels, _ = bags()
    batches = short(batch_size=20, early_stopping=False)
    losses = []
    for _ in range(30):
        batches.partial_fit(arrays[:60], labels[:60], classes=[0, 1]).partial_fit(arrays[60:], labels[60:])
        losses.append(-np.log(batches.predict_proba(arrays)[np.arange(len(labels)), labels]).mean())
    assert batches.n_iter_ == 180
    assert losses[-1] < losses[5] < losses[0]

    warm = short(warm_start=True, early_stopping=False, max_steps=100).fit(arrays, labels)
    before = warm.history_["objective"][-1]
    assert before < 0.6
    assert warm.fit(arrays, labels).history_["objective"][1] < before
    with pytest.raises(ProblemError, match="y: expected classes 0, 1 with warm_start, got 0, 1, 2"):
        warm.fit(arrays, np.arange(len(labels)) % 3)


def test_early_stopping_keeps_the_best_and_says_why_it_ended(monkeypatch):
    monkeypatch.setattr("attsvm.estimator.fitting.PATIENCE", 100)
    arrays, labels, _ = bags(n=240)
    classifier = AttentionClassifier(random_state=0).fit(arrays, labels)
    history = classifier.history_
    assert classifier.status_ is Status.CONVERGED
    assert classifier.kept_step_ == history["steps"][int(np.argmin(history["validation_loss"]))]
    assert classifier.n_iter_ == history["steps"][-1]
    assert all(len(line) == len(history["steps"]) for line in history.values())
    assert short(max_steps=60).fit(arrays, labels).status_ is Status.FINISHED
    seen = []
    stopped = short().fit(arrays, labels, callback=lambda progress: seen.append(progress) or len(seen) == 2)
    assert stopped.status_ is Status.INTERRUPTED
    assert [(progress.step, progress.steps) for progress in seen] == [(25, 150), (50, 150)]
    assert [progress.loss for progress in seen] == stopped.history_["objective"][1:]


def test_the_path_holds_what_shorter_fits_end_with():
    arrays, labels, _ = bags()
    classifier = short(early_stopping=False, max_steps=21).fit(arrays, labels)
    assert list(classifier.path_) == [0, 1, 2, 4, 8, 16, 21]
    assert not classifier.path_[0].prompt.any()
    for steps in (1, 16, 21):
        shorter, model = short(early_stopping=False, max_steps=steps).fit(arrays, labels), classifier.path_[steps]
        assert (shorter.prompt_ == model.prompt).all()
        assert (shorter.head_ == model.head).all()
        assert (shorter.intercept_ == model.intercept).all()


def test_weights_count_and_weight_zero_takes_no_part():
    arrays, labels, _ = bags()
    weights = np.arange(len(labels)) % 3
    kept = np.flatnonzero(weights)
    one = short().fit(arrays, labels, weights)
    other = short().fit([arrays[i] for i in kept], labels[kept], weights[kept])
    np.testing.assert_allclose(one.prompt_, other.prompt_, rtol=1e-12)
    rare = np.flatnonzero((labels == 0) | (np.arange(len(labels)) < 20))
    X, y = [arrays[i] for i in rare], labels[rare]
    plain, balanced = (
        short(class_weight=w, max_steps=100).fit(X, y).predict_proba(X)[:, 1].mean() for w in (None, "balanced")
    )
    assert plain < 0.35 < balanced


def test_margin_report_is_certified_and_takes_slack(tmp_path):
    arrays, labels, _ = bags()
    classifier = short(early_stopping=False).fit(arrays, labels)
    report = classifier.margin_report(arrays)
    assert report.separable
    assert report.num_sequences == len(arrays)
    assert report.solution.status == "optimal"
    prompt = classifier.prompt_ / np.linalg.norm(classifier.prompt_)
    at = classifier.selected(arrays)
    logits = [array @ prompt for array in arrays]
    least = min((s[k] - np.delete(s, k)).min(initial=np.inf) for s, k in zip(logits, at, strict=True))
    scale = np.concatenate(arrays).std(axis=0)
    scale = np.sqrt((scale**2).mean())
    np.testing.assert_allclose(report.margin, least / scale, rtol=1e-6)
    np.testing.assert_allclose(report.margin_ratio, report.margin / report.solution.margin, rtol=1e-6)
    assert 0 < report.margin_ratio <= 1
    report.save(tmp_path / "report.npz")
    assert repr(MarginReport.load(tmp_path / "report.npz")) == repr(report)
    soft = classifier.margin_report(arrays, slack=0.1)
    assert soft.solution.slack == 0.1
    assert soft.solution.value < report.solution.value
    # words that stand twice are one word
    twice = [np.vstack([array, array]) for array in arrays]
    np.testing.assert_allclose(classifier.margin_report(twice).solution.value, report.solution.value, rtol=1e-8)
    lp = short(optimizer="mirror_descent", p=1.5).fit(arrays, labels).margin_report(arrays)
    assert lp.solution.norm.p == 1.5
    # Adam has no norm of its own
    assert short(norm="linf").fit(arrays, labels).margin_report(arrays).solution.norm.p == np.inf


def test_a_label_seen_once_a_single_token_and_a_long_sequence_are_answered():
    arrays, labels, _ = bags(n=30)
    names = labels.astype(str).astype(object)
    names[4] = "once"
    classifier = short(max_steps=25).fit(arrays, names)
    assert classifier.classes_.tolist() == ["0", "1", "once"]
    two = short(max_steps=25).fit([np.eye(2)[:1], np.eye(2)[1:]], ["a", "b"])
    assert two.predict([np.eye(2)[:1], np.eye(2)[1:]]).tolist() == ["a", "b"]
    longest = np.random.default_rng(0).normal(size=(100_000, 4))
    assert len(short(max_steps=3).fit([*arrays, longest], [*labels, 0]).attention([longest])[0]) == 100_000


def test_a_series_and_a_table_of_arrays_are_refused():
    pd = pytest.importorskip("pandas")
    sequences, labels = [np.eye(3)[:2], np.eye(3)[1:], np.eye(3)], [0, 1, 0]
    series = pd.Series(sequences, index=["a", "b", "c"])
    # its index could have another order than that of the labels
    with pytest.raises(ProblemError, match=r"got Series; write its to_list\(\), with the labels in the same order"):
        short().fit(series, labels)
    expected, found = (short().fit(X, labels).attention(X) for X in (sequences, series.to_list()))
    for left, right in zip(expected, found, strict=True):
        np.testing.assert_array_equal(left, right)
    with pytest.raises(ProblemError, match=r"X: expected a matrix of numbers \(T_i, d\) for each sequence, or a row"):
        short().fit(series.to_frame(), labels)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (
            [np.ones((2, 3)), np.ones((0, 3))],
            [0, 1],
            "X: expected at least one token in each sequence, got none in sequence 1",
        ),
        ([], [], "X: expected at least one sequence"),
        ([[[1, 2], [3]], [[1, 2]]], [0, 1], r"X: expected a matrix \(T_i, d\) for each sequence"),
        (np.ones((2, 3, 0)), [0, 1], "X: expected tokens with at least one entry"),
        ([np.ones((2, 3)), np.ones((2, 4))], [0, 1], r"sequences: expected shape .*, got \(2, 4\) at index 1"),
        ([np.ones((2, 3)), np.ones((1, 3))], [1, 1], "y: expected at least two classes, got one class"),
        ([np.ones((2, 3)), np.ones((1, 3))], [0, 1, 1], "y: expected 2 labels, one for each sequence, got 3"),
        (np.ones((2, 3, 1)), np.array([0, "a"], dtype=object), "label type in y: .*, got objects int, str$"),
        (np.ones((2, 3, 1)), [0, np.nan], "^y: expected a label for each sequence, got nan for sequence 1$"),
        (
            [np.ones((2, 3)), np.array([[1.0, np.nan, 2.0]])],
            [0, 1],
            "X: expected finite numbers, got NaN in token 0 of sequence 1, column 1; .* fill missing values with",
        ),
        (
            np.ones((5, 3)),
            [0, 1],
            "y: expected 5 labels, .*, got 2; each row counts as a sequence of one token",
        ),
        ([["x"], ["y"]], [0, 1], "got other entries .could not convert string to float: .*'x'"),
        (np.ones((2, 3, 1, 1)), [0, 1], r"X: expected an array \(n, T, d\) .*, got \(2, 3, 1, 1\)$"),
        (
            np.ma.masked_equal(np.eye(3)[None].repeat(2, 0), 1),
            [0, 1],
            r"^X: expected numbers \(Sequences.from_.*got 6 masked",
        ),
        (np.ones((2, 3, 1), complex), [0, 1], "expected real numbers, got complex128"),
        (
            np.full((2, 3, 1), np.nan),
            [0, 1],
            "X: expected finite numbers, got NaN in token 0 of sequence 0, column 0; leave out padding, as Sequences",
        ),
        (Sequences.from_padded(np.ones((2, 3, 1)), np.zeros((2, 3), bool)), [0, 1], "got none in sequence 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(X, y, message):
    with pytest.raises(ValueError, match=message) as caught:
        short().fit(X, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": "sgd"},
            "optimizer: expected a name .*, got 'sgd'",
        ),
        (
            {"optimizer": optax.adam(0.1), "learning_rate": 0.1},
            "learning_rate: expected None with an optimiser object, which has its own, got 0.1",
        ),
        ({"p": 1.0}, "p: expected a number above 1, got 1.0"),
        ({"batch_size": 0}, "batch_size: expected an integer >= 1, got 0"),
        ({"class_weight": {0: -1.0, 1: 5.0}}, r"class_weight: expected finite numbers >= 0, got \[-1.0, 5.0\]"),
        (
            {"class_weight": {0: 0.0, 1: 0.0}},
            "sample_weight, class_weight: expected products with a positive, finite sum",
        ),
        ({"learning_rate": 1e30, "optimizer": "gradient_descent"}, "learning_rate: training diverged"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    arrays, labels, _ = bags()
    with pytest.raises(ProblemError, match=message):
        short(**changes).fit(arrays, labels)


def test_other_widths_and_labels_are_refused_after_fitting():
    arrays, labels, _ = bags()
    classifier = short(max_steps=25).fit(arrays, labels)
    with pytest.raises(ProblemError, match="X has 2 features, but AttentionClassifier is expecting 4 features"):
        classifier.predict([np.ones((3, 2))])
    with pytest.raises(ProblemError, match="X: expected smaller numbers in sequence 1"):
        short(max_steps=25).fit([1e-9 * array for array in arrays], labels).predict([arrays[0], np.full((2, 4), 1e308)])
    with pytest.raises(ProblemError, match="y: expected one of the labels 0, 1, got 5"):
        classifier.partial_fit(arrays, np.full(len(arrays), 5))


def test_bags_are_of_disjoint_pictures_and_positive_when_one_is_a_nine():
    found = digit_bags(200, 100, seed=3)
    for sequences, labels, digits in (
        (found.train, found.train_labels, found.train_digits),
        (found.test, found.test_labels, found.test_digits),
    ):
        assert ((digits.reshape(-1, 5) == 9).sum(axis=1) == labels).all()
        assert labels.mean() == 0.5
        assert (sequences.lengths == 5).all()
    ours, theirs = ({picture.tobytes() for picture in part.table} for part in (found.train, found.test))
    assert not ours & theirs


def test_on_bags_of_digits_it_finds_the_nine_and_beats_the_mean_token():
    data = digit_bags(2000, 1000, seed=0)
    classifier = short(max_steps=2000).fit(data.train, data.train_labels)
    accuracy = classifier.score(data.test, data.test_labels)
    positive = np.flatnonzero(data.test_labels)
    digits = data.test_digits.reshape(-1, 5)
    assert accuracy > 0.89
    assert (digits[positive, classifier.selected(data.test)[positive]] == 9).mean() > 0.88

    def means(sequences):
        return np.array([array.mean(axis=0) for array in sequences])

    baseline = LogisticRegression(max_iter=1000).fit(means(data.train), data.train_labels)
    assert accuracy > baseline.score(means(data.test), data.test_labels) + 0.07
