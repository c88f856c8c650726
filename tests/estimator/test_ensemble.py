"""The members of an ensemble: their explanations, their choice, and left-out predictions by hand."""

import pickle

import numpy as np
import pytest
from scipy.optimize import nnls

from attsvm import AttentionClassifier, DetectorClassifier
from attsvm.datasets import Sequences, digit_bags
from attsvm.errors import ProblemError
from attsvm.estimator.ridge import fit_ridge
from attsvm.estimator.stacking import Stacking

KINDS = [AttentionClassifier, DetectorClassifier]


def quick(kind=AttentionClassifier, **changes):
    return kind(**{"max_steps": 25, "random_state": 0} | changes)


def bags(n=60, d=4, classes=2, seed=0):
    """Positive bags have one large token more."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    arrays = [generator.normal(size=(2 + generator.integers(5), d)) for _ in range(n)]
    for array, label in zip(arrays, labels, strict=True):
        array[0] += 3 * np.eye(d)[label] * (label > 0)
    return arrays, labels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3])
def test_contributions_add_up_to_the_decision(kind, classes):
    arrays, labels = bags(classes=classes)
    # equal tokens tie, and one token may be all extremes
    arrays[0] = np.tile(arrays[0][:1], (3, 1))
    for ensemble in ("auto", False):
        classifier = quick(kind, ensemble=ensemble).fit(arrays, labels)
        assert (classifier.ensemble_ is not None) == (ensemble == "auto")
        sums = [part.sum(axis=0) for part in classifier.contributions(arrays)]
        np.testing.assert_allclose(sums, classifier.decision_function(arrays), rtol=1e-10, atol=1e-10)
        alone = classifier.decision_function([array[:1] for array in arrays])
        first = np.array([scores[0] for scores in classifier.instance_scores(arrays)])
        if kind is AttentionClassifier or ensemble == "auto":
            shift = 0 if kind is AttentionClassifier else _constant(classifier)
            np.testing.assert_allclose(first + shift, alone, rtol=1e-9, atol=1e-9)


def _constant(classifier):
    """What instance scores of detectors leave out: the intercept, which is the same for all tokens."""
    found = classifier.ensemble_.scale * classifier.intercept_
    return found[0] if len(found) == 1 else found


def test_the_decision_is_the_sum_of_the_members_by_definition():
    arrays, labels = bags()
    classifier = quick().fit(arrays, labels)
    ensemble = classifier.ensemble_
    assert [member.name for member in ensemble.members] == [
        "largest similarities",
        "mean similarities",
        "extremes of columns",
    ]
    largest, mean, extremes = ensemble.members
    assert (ensemble.weights > 0).all()
    # a landmark is a token, so with at most 300 tokens all of them are
    tokens = np.concatenate(arrays)
    for array, found in zip(arrays[:5], classifier.decision_function(arrays[:5]), strict=True):
        weights = np.exp(array @ classifier.prompt_)
        expected = ensemble.scale * (classifier.head_ @ (weights @ array) / weights.sum() + classifier.intercept_)[0]
        for weight, member, pool in zip(ensemble.weights, (largest, mean), (np.max, np.mean), strict=False):
            similarities = member.pooling.similarities
            landmarks = similarities.landmarks * similarities.coordinates.scale + similarities.coordinates.centre
            assert {tuple(row.round(9)) for row in landmarks} == {tuple(row.round(9)) for row in tokens}
            distances = ((array[:, None] - landmarks) ** 2).sum(axis=2) / similarities.coordinates.scale**2
            features = [
                factor * pool(np.exp(-rate * distances), axis=0)
                for rate, factor in zip(similarities.rates, similarities.factors, strict=True)
            ]
            expected += weight * (np.concatenate(features) @ member.coefficients + member.intercept)[0]
        pooling = extremes.pooling
        units = (np.concatenate([array.max(axis=0), array.min(axis=0)]) - pooling.centre) / pooling.scale
        bumps = np.exp(-((units[:, None] - np.arange(-4, 5)) ** 2) / 2).ravel()
        expected += ensemble.weights[2] * (bumps @ extremes.coefficients + extremes.intercept)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_a_further_token_never_lowers_the_decision_of_an_ensemble():
    arrays, labels = bags()
    classifier = quick(DetectorClassifier).fit(arrays, labels)
    assert classifier.ensemble_ is not None
    generator = np.random.default_rng(1)
    more = [np.vstack([array, 4 * generator.normal(size=(2, 4))]) for array in arrays]
    before, after = classifier.decision_function(arrays), classifier.decision_function(more)
    assert (after >= before - 1e-9).all()
    assert (after > before + 1e-3).any()


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("size", [1, 4])
def test_left_out_predictions_are_those_of_fits_without_the_group(nonnegative, size):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(40, 12))
    targets = np.sign(features[:, :1] + generator.normal(size=(40, 1)))
    weights = generator.uniform(0.5, 2, 40)
    weights /= weights.mean()
    groups = np.arange(40) // size

    def by_hand(rows, strength):
        mean, level = (np.average(x[rows], axis=0, weights=weights[rows]) for x in (features, targets[:, 0]))
        root = np.sqrt(weights[rows])
        stacked = np.vstack([root[:, None] * (features[rows] - mean), np.sqrt(strength) * np.eye(12)])
        aims = np.concatenate([root * (targets[rows, 0] - level), np.zeros(12)])
        found = nnls(stacked, aims)[0] if nonnegative else np.linalg.lstsq(stacked, aims)[0]
        return found, level - mean @ found

    fitted = fit_ridge(features, targets, weights, groups, nonnegative=nonnegative)
    centred = features - np.average(features, axis=0, weights=weights)
    strength = fitted.strength * (weights @ centred**2).sum() / 40
    slopes, intercept = by_hand(np.full(40, True), strength)
    np.testing.assert_allclose(fitted.coefficients[:, 0], slopes, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(fitted.intercept[0], intercept, rtol=1e-6, atol=1e-8)
    expected = np.empty(40)
    for group in range(groups.max() + 1):
        slopes, intercept = by_hand(groups != group, strength)
        expected[groups == group] = features[groups == group] @ slopes + intercept
    if nonnegative:  # zero coefficients are kept at zero
        assert np.corrcoef(fitted.left_out[:, 0], expected)[0, 1] > 0.95
    else:
        np.testing.assert_allclose(fitted.left_out[:, 0], expected, rtol=1e-8, atol=1e-10)


def test_the_member_that_predicts_has_the_largest_weight():
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 2
    # in one only the share of tokens in one of two places tells the class, in the other only an extreme
    of_mean, of_extremes = [], []
    for label in labels:
        signs = np.where(generator.permutation(12) < (9 if label else 3), 1.0, -1.0)
        of_mean.append(np.tile(2 * signs[:, None], 3))
        array = generator.normal(size=(12, 3))
        array[:, 2] *= 3
        array[generator.integers(12), 0] = 4.0 if label else 3.0
        of_extremes.append(array)
    for arrays, name in ((of_mean, "mean similarities"), (of_extremes, "extremes of columns")):
        classifier = quick().fit(arrays[:60], labels[:60])
        ensemble = classifier.ensemble_
        assert ensemble.members[np.argmax(ensemble.shares)].name == name
        assert classifier.score(arrays[60:], labels[60:]) >= 0.9


def test_left_out_outputs_that_separate_the_classes_have_the_finite_weights_of_platt():
    targets, ones = np.repeat([[1.0], [-1.0]], 15, axis=0), np.ones(30)
    stacking = Stacking(targets, ones)
    # a probability of 16/17 of the right class
    np.testing.assert_allclose(stacking.best(targets[None]), np.log(16), rtol=1e-9)
    both = np.array([targets, targets])
    np.testing.assert_allclose(stacking.best(both, equality=0.1), np.log(16) / 2, rtol=1e-9)
    rounded = both * (1 + 1e-12 * np.random.default_rng(0).normal(size=both.shape))
    np.testing.assert_allclose(stacking.best(rounded, equality=0.1), np.log(16) / 2, rtol=1e-9)
    # a member that predicts the opposite has no weight
    np.testing.assert_allclose(stacking.best(np.array([targets, -targets])), [np.log(16), 0], rtol=1e-9)
    assert stacking.loss(np.log(16) * targets) == pytest.approx(np.log(17 / 16))


def test_weights_are_those_of_the_smallest_smoothed_loss():
    generator = np.random.default_rng(0)
    targets = np.sign(generator.normal(size=(40, 3)))
    outputs, weights = targets + 2 * generator.normal(size=(3, 40, 3)), generator.uniform(0.5, 2, 40)
    found = Stacking(targets, weights).best(outputs, equality=0.05)
    cvxpy = pytest.importorskip("cvxpy")
    shares, value = cvxpy.Variable(3, nonneg=True), 0.0
    for column in range(3):
        number = {label: (targets[:, column] == label).sum() for label in (1, -1)}
        right = np.array([(number[label] + 1) / (number[label] + 2) for label in targets[:, column]])
        margins = cvxpy.multiply(targets[:, column], outputs[:, :, column].T @ shares)
        value += (weights / weights.sum()) @ (
            cvxpy.multiply(right, cvxpy.logistic(-margins)) + cvxpy.multiply(1 - right, cvxpy.logistic(margins))
        )
    penalty = cvxpy.sum_squares(shares - cvxpy.sum(shares) / 3)
    cvxpy.Problem(cvxpy.Minimize(value + 0.05 * penalty)).solve(solver="CLARABEL")
    np.testing.assert_allclose(found, shares.value, rtol=1e-5, atol=1e-6)


def test_a_fit_is_determined_by_its_seed_and_survives_pickling():
    data = digit_bags(80, 40, seed=0)
    one, other = (quick().fit(data.train, data.train_labels) for _ in range(2))
    expected = one.decision_function(data.test)
    assert (other.decision_function(data.test) == expected).all()
    assert (pickle.loads(pickle.dumps(one)).decision_function(data.test) == expected).all()
    # the network is that without an ensemble
    assert (quick(ensemble=False).fit(data.train, data.train_labels).prompt_ == one.prompt_).all()
    one.partial_fit(data.train, data.train_labels)
    assert one.ensemble_ is None


def test_which_fits_have_an_ensemble():
    arrays, labels = bags()
    weights = np.ones(60)
    weights[:26:2] = weights[1:56:2] = 0  # four of class 1
    assert quick().fit(arrays, labels).ensemble_ is not None
    assert quick().fit(arrays, labels, weights).ensemble_ is None
    assert quick().fit([array[:1] for array in arrays], labels).ensemble_ is None
    assert quick(early_stopping=False).fit(arrays, labels).ensemble_ is None
    assert quick(early_stopping=False, ensemble=True).fit(arrays, labels).ensemble_ is not None
    assert quick(warm_start=True).fit(arrays, labels).ensemble_ is None
    assert quick().fit(arrays, labels, validation=0.2).ensemble_ is None
    sequences = Sequences.from_arrays(arrays)
    np.testing.assert_allclose(
        quick().fit(sequences, labels).decision_function(sequences),
        quick().fit(arrays, labels).decision_function(arrays),
        rtol=1e-9,
    )
    with pytest.raises(ProblemError, match="ensemble: expected True, False or 'auto', got 'yes'"):
        quick(ensemble="yes").fit(arrays, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_that_cannot_be_left_out_give_no_ensemble(kind):
    arrays, labels = bags()
    for groups in (np.zeros(60), labels):
        assert quick(kind).fit(arrays, labels, groups=groups).ensemble_ is None
    for wanted in (True, np.True_):  # before any step
        with pytest.raises(ProblemError, match=r"^groups: expected at least two with ensemble=True"):
            quick(kind, ensemble=wanted).fit(
                arrays, labels, groups=np.zeros(60), callback=lambda _: pytest.fail("a step")
            )
    with pytest.raises(ProblemError, match=r"^groups: expected one for each of 60 sequences"):
        quick(kind, early_stopping=False).fit(arrays, labels, groups=[0, 1], callback=lambda _: pytest.fail("a step"))
    # nothing is learned of a class that is in no other group, and rounding is not scaled up
    apart = quick(kind, ensemble=True).fit(arrays, labels, groups=labels)
    assert np.abs(apart.decision_function(arrays)).max() < 20
