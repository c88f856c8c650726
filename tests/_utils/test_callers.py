"""Warnings of classifiers are at the line of the user, also through a part of scikit-learn."""

import warnings

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from attsvm import AttentionClassifier

pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")


def test_warnings_are_at_the_line_of_the_user_and_a_fit_warns_once():
    X = np.random.default_rng(0).normal(size=(40, 2, 3)) * [1, 1, 1000]
    y = np.arange(40) % 2
    rows = pandas.DataFrame({"bag": np.repeat(np.arange(40), 2), "site": ["north", "south"] * 40})
    model = AttentionClassifier(max_steps=2, random_state=0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        cross_val_score(model, X, y, cv=2)
        model.fit(rows, pandas.Series(np.repeat(y, 2)), bag="bag")
        model.predict(rows.assign(site="west"))
        model.fit(X, y, validation=0.2).margin_report(X)
    units, rest = ["X: the spreads"], ["y: expected one value", "X: column 'site' has west"]
    said = [*2 * units, *rest, *units, "the validation loss"]
    assert [str(warning.message)[: len(words)] for warning, words in zip(seen, said, strict=True)] == said
    assert {warning.filename for warning in seen} == {__file__}
