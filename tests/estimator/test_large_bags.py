"""Bags that are large: batches are bounded in bytes, tables are not copied, and instances may be sampled."""

import numpy as np
import pytest

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences, sequences
from attsvm.estimator import batches, fitting
from attsvm.estimator.batches import BYTES, Room, TrainingBatch, sampled


def bags(n=60, d=5, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % 2
    arrays = [generator.normal(size=(generator.integers(3, 30), d)).astype(np.float32) for _ in labels]
    for array, label in zip(arrays, labels, strict=True):
        array[0, 0] += 4 * label
    return arrays, labels


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_a_list_that_is_not_copied_gives_the_same_classifier(kind, monkeypatch):
    arrays, labels = bags()
    model = kind(max_steps=40, random_state=0)
    expected = model.fit(arrays, labels).decision_function(arrays)
    monkeypatch.setattr(sequences, "JOINED", 0)
    assert not isinstance(Sequences.from_arrays(arrays).table, np.ndarray)
    np.testing.assert_array_equal(model.fit(arrays, labels).decision_function(arrays), expected)


def test_batches_are_bounded_in_bytes_and_a_vector_that_several_have_counts_once(monkeypatch):
    arrays, _ = bags()
    monkeypatch.setattr(batches, "BYTES", 50 * 5 * 4)
    alone = Sequences.from_arrays([*arrays, np.ones((80, 5), np.float32)])
    shared = Sequences(np.ones((40, 5), np.float32), np.arange(3000) % 40, 30 * np.arange(101))
    for data, most, fewest in ((alone, None, 10), (alone, 10, 5), (shared, None, 4)):
        drawn = batches.batches(data, 2, 32, most, np.random.RandomState(0))
        np.testing.assert_array_equal(np.sort(np.concatenate(drawn)), np.arange(len(data)))
        assert fewest <= len(drawn)
        for chosen in drawn:
            part = sampled(data[chosen], most, np.random.RandomState(0))
            assert len(np.unique(part.ids)) <= 50 or len(chosen) == 1
            batch = batches.gather(part, np.ones(len(part)), np.ones(len(part)), np.zeros(5), 1.0, 40.0)
            np.testing.assert_array_equal(batch.rows[batch.places[: len(part.ids)]], data.table[part.ids])
    assert [len(chosen) for chosen in drawn] == [25] * 4
    assert len(Room(shared).first(np.arange(100))) == 100


def test_the_sum_over_many_rows_is_that_of_the_product():
    generator = np.random.default_rng(0)
    rows, numbers = generator.normal(size=(12_288, 128)).astype(np.float32), generator.normal(size=(12_288, 3))
    found = TrainingBatch(rows, None, None, None, None).pull_back(numbers.astype(np.float32))
    expected = rows.astype(float).T @ numbers
    assert found.shape == (128, 3)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(rows).sum(axis=0).max())


def test_instances_are_sampled_without_replacement_and_anew():
    data, generator = Sequences.from_arrays(bags()[0]), np.random.RandomState(0)
    first, second = (sampled(data, 10, generator) for _ in range(2))
    np.testing.assert_array_equal(first.lengths, np.minimum(data.lengths, 10))
    assert len(np.unique(first.ids)) == len(first.ids)
    assert (first.ids != second.ids).any()
    for i in range(len(data)):
        own = data.ids[data.offsets[i] : data.offsets[i + 1]]
        assert np.isin(first.ids[first.offsets[i] : first.offsets[i + 1]], own).all()


@pytest.mark.parametrize("kind", [AttentionClassifier, DetectorClassifier])
def test_max_instances(kind):
    arrays, labels = bags()
    expected = kind(max_steps=40, random_state=0).fit(arrays, labels).decision_function(arrays)
    whole = kind(max_steps=40, random_state=0, max_instances=30).fit(arrays, labels)
    np.testing.assert_array_equal(whole.decision_function(arrays), expected)
    some = kind(max_steps=40, random_state=0, max_instances=8).fit(arrays, labels)
    assert (some.decision_function(arrays) != expected).any()
    with pytest.raises(ProblemError, match="max_instances: expected an integer >= 1"):
        kind(max_instances=0).fit(arrays, labels)


def test_large_validation_sequences_are_checked_more_rarely(monkeypatch):
    arrays, labels = bags()
    small = AttentionClassifier(max_steps=100, random_state=0).fit(arrays, labels, validation=0.3)
    assert small.history_["steps"] == [0, 25, 50, 75, 100]
    monkeypatch.setattr(fitting, "BYTES", BYTES >> 18)
    large = AttentionClassifier(max_steps=100, random_state=0).fit(arrays, labels, validation=0.3)
    assert large.history_["steps"][-1] == 100
    assert large.history_["steps"][1] > 25
