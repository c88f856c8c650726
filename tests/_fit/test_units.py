"""The units of columns change no result, where columns have units of their own."""

import warnings

import numpy as np
import pytest

import attsvm
from attsvm import AttentionClassifier, DetectorClassifier, ProblemError, fit
from attsvm.datasets import Sequences, digit_bags, random_problem
from attsvm.estimator import units_differ
from attsvm.pages import make_page

UNITS = [np.ones(5), np.array([1, 1, 1, 1, 100.0]), np.array([1e-3, 1e-3, 1, 1, 1]), np.array([1e-9, 1e9, 1, 30, 1])]


def bags(units, n=400, T=5):
    """One token of each positive bag is shifted in two columns; the others have no information."""
    generator = np.random.default_rng(0)
    labels = np.where(generator.random(n) < 0.44, 1, -1)
    tokens = generator.normal(size=(n, T, 5))
    tokens[labels == 1, 0, :2] += 3.0
    return tokens * units + 10 * units[::-1], labels


def towards_an_att_svm(units):
    tokens, labels = bags(units, n=600, T=8)
    return fit(tokens, labels=labels, train_head=False, steps=30, scale="columns")


@pytest.fixture(scope="module")
def of_one_unit():
    return towards_an_att_svm(UNITS[0])


@pytest.mark.parametrize("units", UNITS)
def test_the_main_job_finds_the_token_whatever_the_units(units, of_one_unit):
    tokens, labels = bags(units)
    done = fit(tokens, labels=labels)
    assert done.on_test.accuracy >= 0.95
    assert done.baseline["test"] >= 0.8
    assert done.settings["scale"] == ("common" if (units == 1).all() else "columns")
    notes = " ".join(make_page(done, command="attsvm fit").notes)
    assert ("divided by its own spread" in notes) == (done.settings["scale"] == "columns")
    # the default training towards an Att-SVM does not depend on the units, either
    scaled = towards_an_att_svm(units)
    np.testing.assert_allclose(scaled.run.weights, of_one_unit.run.weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(scaled.train.head, of_one_unit.train.head, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_a_classifier_on_arrays_finds_it_and_says_that_it_scales(kind):
    tokens, labels = bags(UNITS[1])
    with pytest.warns(
        UserWarning, match="^X: the spreads of the columns differ .*; scale='common' divides all columns"
    ):
        model = kind(random_state=0, max_steps=1000).fit(tokens[:300], labels[:300])
    assert model.scale_ == "columns"
    assert model.score(tokens[300:], labels[300:]) >= 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kind(max_steps=1, scale="common").fit(tokens, labels).scale_ == "common"
        assert kind(max_steps=1).fit(bags(UNITS[0])[0], labels).scale_ == "common"


def test_spreads_differ_where_entries_of_a_column_do_and_not_where_values_are_rare():
    generator = np.random.default_rng(0)

    def differ(rows):
        return units_differ(Sequences(rows, np.arange(len(rows)), [0, len(rows)]))

    signs = generator.choice([-1.0, 1.0], (400, 3))
    for factor in (9.9, 10.1, 1e200, 1e-200):
        for shift in (0.0, 1e3):
            rows = (signs + shift) * [1, factor, 1]
            assert differ(rows) == (factor != 9.9)
    # pictures, words of a vocabulary, constant columns, and few tokens have no units that are seen
    assert not units_differ(digit_bags(seed=0).train)
    one_hot = np.eye(50)[generator.choice(50, 2000, p=np.arange(1, 51) / 1275)]
    assert not differ(one_hot)
    assert differ(np.hstack([one_hot, 1000 * generator.random((2000, 1))]))
    assert not differ(np.hstack([signs, np.full((400, 1), 0.1) * (1 + 1e-16 * signs[:, :1])]))
    assert not differ(signs[:10] * [1, 1e3, 1])


def test_scale_is_an_option_and_refused_where_coordinates_are_given():
    tokens, labels = bags(UNITS[0], n=40)
    for scale in ("columns", "common"):
        assert fit(tokens, labels=labels, scale=scale, steps=25).numbers()["training"]["scale"] == scale
    problem = random_problem(20, 4, 5, seed=0)
    assert fit(problem, steps=20).settings["scale"] == "common"
    with pytest.raises(ProblemError, match=r"^scale: expected 'common' or None for a problem with a head or keys, "):
        fit(problem, steps=20, scale="columns")
    with pytest.raises(ProblemError, match=r"^scale: expected 'columns', 'common' or None, got 'units'$"):
        fit(attsvm.Problem(tokens, labels=labels), steps=20, scale="units")
