"""Meta-estimators of scikit-learn that the guide names: several labels of a bag, and calibrated probabilities."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.multiclass import OneVsRestClassifier

from attsvm import AttentionClassifier, DetectorClassifier
from attsvm.datasets import Sequences

pytestmark = pytest.mark.slow


def bags(n=120):
    """Ragged bags with up to two of three kinds of tokens, and which kinds they have, (n, 3)."""
    generator = np.random.default_rng(0)
    kinds = generator.random((n, 3)) < 0.4
    arrays = []
    for own in kinds:
        background = generator.normal(size=(1 + generator.integers(3), 3))
        arrays.append(np.vstack([background, 6 * np.eye(3)[own]]))
    return arrays, kinds.astype(int)


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_one_vs_rest_gives_a_bag_several_labels(kind):
    arrays, labels = bags()
    several = OneVsRestClassifier(kind(max_steps=50, random_state=0)).fit(arrays, labels)
    probability = several.predict_proba(arrays)
    of_sequences = OneVsRestClassifier(kind(max_steps=50, random_state=0)).fit(Sequences.from_arrays(arrays), labels)
    np.testing.assert_allclose(of_sequences.predict_proba(Sequences.from_arrays(arrays)), probability, rtol=1e-7)
    for column in range(3):
        alone = kind(max_steps=50, random_state=0).fit(arrays, labels[:, column])
        np.testing.assert_array_equal(probability[:, column], alone.predict_proba(arrays)[:, 1])
    assert ((several.predict(arrays) == labels).mean(axis=0) > 0.6).all()


def test_lists_and_sequences_are_calibrated():
    arrays, labels = bags()
    classifier = AttentionClassifier(max_steps=50, random_state=0)
    found = []
    for X in (arrays, Sequences.from_arrays(arrays)):
        calibrated = CalibratedClassifierCV(classifier, method="sigmoid", cv=3).fit(X, labels[:, 0])
        found.append(calibrated.predict_proba(X))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    assert found[0].sum(axis=1) == pytest.approx(1)
