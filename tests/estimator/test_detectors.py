"""Detectors: scikit-learn's conventions, the definition, the multiple-instance assumption, and what they find."""

import dataclasses
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import attsvm
from attsvm import DetectorClassifier
from attsvm.datasets import Sequences, mil_unit_tests
from attsvm.estimator import batches

pytestmark = pytest.mark.slow


def short(**changes):
    return DetectorClassifier(**{"max_steps": 150, "random_state": 0, "num_detectors": 5, "ensemble": False} | changes)


def bags(n=60, d=3, classes=2, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    arrays = [generator.normal(size=(1 + generator.integers(6), d)) for _ in range(n)]
    for array, label in zip(arrays, labels, strict=True):
        array[0] += 3 * np.eye(d)[label] * (label > 0 or classes > 2)
    return arrays, labels


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    arrays, labels = bags(classes=request.param)
    return short().fit(arrays, labels), arrays


def by_definition(classifier, array):
    logits = np.einsum("ckd,td->tck", classifier.detectors_, array) + classifier.offsets_
    activations = 1 / (1 + np.exp(-logits))
    output = (activations.max(axis=0) * classifier.weights_).sum(axis=1) + classifier.intercept_
    return output, (activations * classifier.weights_).sum(axis=2), logits.argmax(axis=0)


class EitherPositive(DetectorClassifier):
    """With the last label as the positive one: scikit-learn's checks have labels 1 and 2, and words."""

    def _find_positive(self, classes):
        return classes.tolist()[-1] if len(classes) == 2 else None


def test_scikit_learn_finds_its_conventions_kept(monkeypatch):
    monkeypatch.setattr(batches, "FEWEST", 512)  # data of all sizes share their compiled steps
    expected = {"check_sample_weight_equivalence_on_dense_data": "n of the penalty, and centre and scale, count copies"}
    model = EitherPositive(5, max_steps=25, learning_rate=0.1, random_state=0)
    check_estimator(model, expected_failed_checks=expected, on_skip=None)


def test_outputs_scores_and_selection_are_those_of_the_definition(fitted):
    classifier, arrays = fitted
    outputs, scores, selected = zip(*(by_definition(classifier, array) for array in arrays), strict=True)
    np.testing.assert_allclose(
        classifier.decision_function(arrays).reshape(len(arrays), -1), np.array(outputs), rtol=1e-9, atol=1e-12
    )
    for found, expected in zip(classifier.instance_scores(arrays), scores, strict=True):
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-9)
    assert (classifier.selected(arrays).reshape(len(arrays), -1) == np.array(selected).reshape(len(arrays), -1)).all()
    probability = classifier.predict_proba(arrays)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_allclose(classifier.predict_log_proba(arrays), np.log(probability), atol=1e-12)
    assert (classifier.predict(arrays) == classifier.classes_[probability.argmax(axis=1)]).all()
    assert (classifier.weights_ >= 0).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 59), st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_a_further_token_never_lowers_the_decision(fitted, which, token):
    classifier, arrays = fitted
    before, after = classifier.decision_function([arrays[which], np.vstack([arrays[which], token])])
    assert (after >= before - 1e-6).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_is_that_of_finite_differences(classes):
    import jax

    from attsvm.estimator.batches import gather
    from attsvm.estimator.detectors import Detectors

    arrays, labels = bags(n=12, classes=classes)
    arrays[5], arrays[8] = np.tile(arrays[5], (4, 1)), np.random.default_rng(1).normal(size=(40, 3))
    sequences, generator = Sequences.from_arrays(arrays), np.random.RandomState(0)
    targets, weights = 2.0 * labels - 1 if classes == 2 else labels, 1.0 + np.arange(12)
    batch = gather(sequences, targets, weights, np.zeros(3), 1.0, 90.0)

    def by_hand(P, c, w, b):
        value = 0.15 * ((P**2).sum() + (w**2).sum())
        for array, label, weight in zip(arrays, labels, weights, strict=True):
            largest = np.einsum("ckd,td->tck", P, array).max(axis=0) + c
            outputs = (w / (1 + np.exp(-largest))).sum(axis=1) + b
            signs = 2.0 * (label == np.arange(len(b)) + (classes == 2)) - 1
            value += weight / 12 * np.log1p(np.exp(-signs * outputs)).sum()
        return value

    network = Detectors(2)
    with jax.enable_x64(True):
        parameters = network.initial(3, 1 if classes == 2 else 3, np.float64, generator)
        compiled = jax.jit(network.value_and_gradient)
        value, gradient = compiled(parameters, batch, 0.3)
        np.testing.assert_allclose(value, by_hand(**parameters), rtol=1e-12)
        for name, value in parameters.items():
            direction = generator.normal(size=value.shape)
            ends = [float(compiled(parameters | {name: value + h * direction}, batch, 0.3)[0]) for h in (-1e-5, 1e-5)]
            np.testing.assert_allclose(np.sum(gradient[name] * direction), (ends[1] - ends[0]) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    ["presence", pytest.param("and", marks=pytest.mark.long), pytest.param("false_frequency", marks=pytest.mark.long)],
)
def test_it_passes_the_unit_tests_of_the_assumption(name):
    data = mil_unit_tests(name, seed=0)
    parts = [
        Sequences(np.hstack([x, x**2]).astype(np.float32), bags.ids, bags.offsets)
        for bags in (data.train, data.test)
        for x in [np.clip(bags.table, -5, 5)]
    ]
    classifier = DetectorClassifier(random_state=0).fit(parts[0], data.train_labels)
    assert roc_auc_score(data.test_labels, classifier.decision_function(parts[1])) > 0.97


def test_instance_scores_rank_the_nines():
    data = attsvm.datasets.digit_bags(500, 300, seed=0)
    classifier = DetectorClassifier(max_steps=500, random_state=0).fit(data.train, data.train_labels)
    scores = classifier.instance_scores(data.test)
    assert roc_auc_score(data.test_digits == 9, scores) > 0.96
    assert (data.test_digits[np.argsort(-scores)[:50]] == 9).mean() > 0.9


def test_each_detector_is_the_separator_of_what_it_selects(fitted):
    classifier, arrays = fitted
    report = classifier.margin_report(arrays, detector=1, class_=classifier.classes_[-1])
    assert report.num_sequences == len(arrays)
    assert 0 < report.margin_ratio <= 1 + 1e-9
    with pytest.raises(attsvm.ProblemError, match="detector: expected an integer from 0 to 4, got 5"):
        classifier.margin_report(detector=5, class_=1)
    with pytest.raises(attsvm.ProblemError, match="class_: expected one of"):
        classifier.margin_report(class_=17)


@pytest.mark.parametrize("kind", [DetectorClassifier, attsvm.AttentionClassifier])
def test_the_names_of_two_classes_change_no_prediction(kind):
    arrays, labels = bags()
    expected = kind(max_steps=150, random_state=0, class_weight={1: 2.0}).fit(arrays, labels)
    # the positive one comes first in the alphabet
    names = np.array(["stay", "churn"])
    named = names[labels]
    found = kind(max_steps=150, random_state=0, class_weight={"churn": 2.0}, positive="churn").fit(arrays, named)
    assert (found.predict(arrays) == names[expected.predict(arrays)]).all()
    np.testing.assert_allclose(found.predict_proba(arrays), expected.predict_proba(arrays)[:, ::-1], rtol=1e-9)
    np.testing.assert_allclose(found.decision_function(arrays), -expected.decision_function(arrays), rtol=1e-9)
    scores, auc = np.concatenate(expected.instance_scores(arrays)), get_scorer("roc_auc")
    assert auc(found, arrays, named) == pytest.approx(auc(expected, arrays, labels))
    np.testing.assert_allclose(np.concatenate(found.instance_scores(arrays)), scores, rtol=1e-9)
    np.testing.assert_allclose(np.concatenate(found.instance_scores(arrays, class_="stay")), -scores, rtol=1e-9)
    # chunks go on with the same class
    parts = [
        kind(random_state=0, **given).partial_fit(arrays, y, classes=c).partial_fit(arrays, y)
        for given, y, c in (({}, labels, [0, 1]), ({"positive": "churn"}, named, names))
    ]
    one, other = (part.decision_function(arrays) for part in parts)
    np.testing.assert_allclose(one, -other, rtol=1e-9)


def test_a_pair_of_labels_without_a_positive_one_is_refused_where_it_matters():
    arrays, labels = bags()
    named = np.array(["stay", "churn"])[labels]
    message = r"^positive: expected positive='churn' or positive='stay', the class of the bags .*, got None$"
    for fit in (short().fit, short().partial_fit):
        with pytest.raises(attsvm.ProblemError, match=message):
            fit(arrays, named)
    for pair in ([False, True], [-1, 1], [0.0, 1.0]):
        assert short(max_steps=1).fit(arrays, np.array(pair)[labels]).positive_ == 1
    with pytest.raises(attsvm.ProblemError, match="positive: expected one of the labels churn, stay, got 'chrun'"):
        short(positive="chrun").fit(arrays, named)
    with pytest.raises(attsvm.ProblemError, match="positive: expected None for 3 classes, got 1"):
        short(positive=1).fit(arrays, np.arange(60) % 3)
    either = attsvm.AttentionClassifier(max_steps=1).fit(arrays, named)
    assert either.positive_ is None
    with pytest.raises(attsvm.ProblemError, match="classes churn, stay, because there is no default without"):
        either.instance_scores(arrays)
    fitted = short(positive="stay", max_steps=1, warm_start=True).fit(arrays, named)
    with pytest.raises(attsvm.ProblemError, match="class_: expected 'stay', whose detectors these are, got 'churn'"):
        fitted.margin_report(class_="churn")
    with pytest.raises(attsvm.ProblemError, match="positive: expected 'stay' with warm_start, as before, got 'churn'"):
        fitted.set_params(positive="churn").fit(arrays, named)


@pytest.mark.parametrize("kind", [DetectorClassifier, attsvm.AttentionClassifier])
def test_a_token_net_maps_the_tokens_first(kind):
    def short(**changes):
        return kind(max_steps=100, random_state=0, **changes)

    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    arrays, labels = bags()
    squares = PolynomialFeatures(2, include_bias=False)
    mapped = [squares.fit_transform(array) for array in arrays]
    expected = short().fit(mapped, labels).decision_function(mapped)
    np.testing.assert_allclose(short(token_net=squares).fit(arrays, labels).decision_function(arrays), expected)
    module = torch.nn.Linear(3, 2, dtype=torch.float64)
    by_hand = [array @ module.weight.detach().numpy().T + module.bias.detach().numpy() for array in arrays]
    np.testing.assert_allclose(
        short(token_net=module).fit(arrays, labels).decision_function(arrays),
        short().fit(by_hand, labels).decision_function(by_hand),
        rtol=1e-6,
    )
    in_place = FunctionTransformer(lambda tokens: np.tanh(tokens, out=tokens))
    by_hand = [np.tanh(array) for array in arrays]
    np.testing.assert_allclose(
        short(token_net=in_place).fit(arrays, labels).decision_function(arrays),
        short().fit(by_hand, labels).decision_function(by_hand),
    )
    # it is used as it is, and a copy of it is kept
    before = module.weight.detach().clone()
    kept = short(token_net=module).fit(arrays, labels)
    scores = kept.instance_scores(arrays)
    assert (module.weight == before).all()
    with torch.no_grad():
        module.weight.zero_()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(kept)).instance_scores(arrays)[0], scores[0])
    with pytest.raises(attsvm.ProblemError, match="token_net: expected a transformer"):
        short(token_net="pca").fit(arrays, labels)
    with pytest.raises(attsvm.ProblemError, match="token_net: expected a transformer"):
        short(token_net=type(module)).fit(arrays, labels)
    wide = torch.nn.Linear(arrays[0].shape[1] + 1, 2)
    with pytest.raises(attsvm.ProblemError, match=r"token_net: expected a module that maps tokens of shape \(\d+, "):
        short(token_net=wide).fit(arrays, labels)


def test_the_margin_report_says_what_to_do_and_warns_of_bags_with_nothing_to_select():
    arrays, labels = bags(n=300)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = short(max_steps=400).fit(arrays, labels).margin_report(arrays)
    for ratio, word in ((0.001, "low"), (0.05, "usual"), (0.5, "high"), (np.nan, "no margin ratio")):
        changed = dataclasses.replace(report, margin_ratio=ratio)
        assert changed.advice.startswith(word)
        assert changed.advice in repr(changed)
    shuffled = np.random.default_rng(0).permutation(labels)
    with pytest.warns(
        RuntimeWarning,
        match=r"(barely|no) better than always predicting the class frequencies, 0\.69: "
        r"these",
    ):
        short(max_steps=400).fit(arrays, shuffled).margin_report(arrays)


def test_initial_logits_are_of_order_one_in_any_dimension():
    from attsvm.estimator.detectors import Detectors

    for d in (2, 64, 2048):
        generator = np.random.RandomState(0)
        detectors = Detectors(200).initial(d, 1, np.float64, generator)["P"][0]
        assert 0.7 < (generator.normal(size=(200, d)) @ detectors.T).std() < 3
