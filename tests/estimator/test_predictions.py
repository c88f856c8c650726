"""The tokens that predictions name: those that decide, by what the decision is without them."""

from functools import lru_cache

import numpy as np
import pytest

import attsvm
from attsvm.datasets import BagFile, Sequences
from attsvm.errors import ProblemError
from attsvm.estimator import predict_bags


def planted(seed, n):
    """Masses near 56 and 200, and in each positive bag one near 130: no linear function of a token finds it."""
    generator = np.random.default_rng(seed)
    lengths, labels = generator.integers(4, 9, n), np.arange(n) % 2
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    mass = generator.choice([56.0, 200.0], offsets[-1]) + generator.normal(0, 4, offsets[-1])
    deciding = offsets[:-1] + generator.integers(lengths)
    mass[deciding[labels == 1]] = generator.normal(130, 4, labels.sum())
    tokens = np.column_stack([mass, generator.normal(size=offsets[-1])])
    return Sequences(tokens, np.arange(offsets[-1]), offsets), labels, deciding


@lru_cache
def fitted(kind, ensemble="auto"):
    sequences, labels, _ = planted(0, 60)
    return kind(random_state=0, scale="columns", max_steps=100, ensemble=ensemble).fit(sequences, labels)


@pytest.mark.parametrize("kind", [attsvm.AttentionClassifier, attsvm.DetectorClassifier])
def test_an_ensemble_names_the_token_without_which_the_decision_changes(kind):
    classifier = fitted(kind)
    sequences, labels, deciding = planted(1, 60)
    found = predict_bags(classifier, BagFile(sequences, labels))
    assert len(found.ensemble) == len(classifier.ensemble_.members)
    assert found.share is None
    positive = (labels == 1) & (found.predicted == 1)
    assert positive.sum() >= 28
    assert (found.first == deciding)[positive].mean() >= 0.95
    if kind is attsvm.AttentionClassifier:  # which attends to other tokens
        attended = sequences.offsets[:-1] + classifier.selected(sequences)
        assert (attended == deciding)[positive].mean() < 0.5
    for i in np.flatnonzero(positive)[:10]:
        bag, place = sequences[i], found.first[i] - sequences.offsets[i]
        without = classifier.decision_function([np.delete(bag, t, axis=0) for t in range(len(bag))])
        assert without.argmin() == place


def test_contributions_are_those_of_the_classifier_and_add_up():
    sequences, labels, _ = planted(1, 20)
    for ensemble in ("auto", False):
        classifier = fitted(attsvm.AttentionClassifier, ensemble)
        found = predict_bags(classifier, BagFile(sequences, labels))
        sums = np.add.reduceat(found.contributions, sequences.offsets[:-1])
        log_odds = np.log(found.probability) - np.log(found.probability[:, ::-1])
        np.testing.assert_allclose(sums, log_odds, rtol=1e-8, atol=1e-8)
        assert (found.contribution > 0).all()
        assert (found.share is None) == (ensemble == "auto")


def test_labels_that_are_no_classes_are_refused_by_name():
    sequences, labels, _ = planted(1, 20)
    classifier = fitted(attsvm.AttentionClassifier)
    assert predict_bags(classifier, BagFile(sequences, labels.astype(str))).report.accuracy > 0.5
    with pytest.raises(ProblemError, match=r"^labels: expected one of the labels 0, 1, got 2$"):
        predict_bags(classifier, BagFile(sequences, labels + 1))


LOSSES = {
    "squared_error": ({}, "mean"),
    "quantile": ({"quantile": 0.9}, "quantile 0.9"),
    "cox": ({}, "log hazard ratio"),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_regressor_predicts_its_quantity_as_a_sum_over_tokens(loss):
    options, quantity = LOSSES[loss]
    bags = attsvm.datasets.digit_bags(40, 20, seed=0)
    totals, of_test = (1.0 + x.reshape(-1, 5).max(axis=1) for x in (bags.train_digits, bags.test_digits))
    targets = np.column_stack([np.ones(40), totals]) if loss == "cox" else totals
    regressor = attsvm.AttentionRegressor(loss=loss, max_steps=25, random_state=0, **options).fit(bags.train, targets)
    found = predict_bags(regressor, BagFile(bags.test))
    assert found.named_quantity == quantity
    np.testing.assert_array_equal(found.values, regressor.predict(bags.test))
    sums = np.add.reduceat(found.contributions, bags.test.offsets[:-1])
    np.testing.assert_allclose(found.constant + sums, found.values, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.contributions, regressor.contributions(bags.test))
    largest = np.maximum.reduceat(np.abs(found.contributions), bags.test.offsets[:-1])
    np.testing.assert_array_equal(np.abs(found.contribution), largest)  # of either sign
    if loss == "cox":
        with pytest.raises(ProblemError, match=r"^labels: expected None for log hazard ratios"):
            predict_bags(regressor, BagFile(bags.test, of_test))
        return
    compared = predict_bags(regressor, BagFile(bags.test, of_test))
    assert compared.report.mae == pytest.approx(np.abs(of_test - found.values).mean())
    for wrong, said in ((of_test.astype(str) + "x", "a number for each bag"), (of_test * np.nan, "finite numbers")):
        with pytest.raises(ProblemError, match=rf"^labels: expected {said}"):
            predict_bags(regressor, BagFile(bags.test, wrong))
