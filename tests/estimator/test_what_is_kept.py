"""A fitted classifier and its pickle: no training data unless they are asked for, any optimiser, and half precision."""

import pickle

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.base import clone

import attsvm
from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences

KINDS = [AttentionClassifier, DetectorClassifier]


def bags(n=40, T=80, d=20, dtype=np.float32):
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal((T, d)).astype(dtype) for _ in range(n)]
    labels = np.arange(n) % 2
    for array, label in zip(arrays, labels, strict=True):
        array[0, :2] += 4 * label
    return arrays, labels


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_classifier_holds_no_training_data_unless_it_keeps_a_sample(kind):
    arrays, labels = bags()
    size = sum(array.nbytes for array in arrays)
    model = kind(max_steps=25, random_state=0, ensemble=False)  # which keeps tokens as landmarks
    for fitted in (model.fit(arrays, labels), clone(model).partial_fit(arrays, labels)):
        held = pickle.dumps(fitted)
        assert len(held) < 0.2 * size
        assert not any(array[row].tobytes() in held for array in arrays for row in range(0, len(array), 50))
        with pytest.raises(ProblemError, match=r"^X: expected sequences, because .* with keep_sample=True$"):
            fitted.margin_report()
    keeping = clone(model).set_params(keep_sample=True).fit(arrays[:10], labels[:10])
    assert len(pickle.dumps(keeping)) > 10 * arrays[0].nbytes
    # all of them: fewer than are drawn
    assert repr(keeping.margin_report()) == repr(keeping.margin_report(arrays[:10]))
    assert keeping.set_params(keep_sample=False).fit(arrays[:10], labels[:10])._sample is None


OPTIMIZERS = {
    "adamw": lambda: optax.adamw(0.05, weight_decay=1e-3),
    "schedule and mask": lambda: optax.chain(
        optax.masked(optax.clip(0.1), {"p": True, "V": False, "b": False}),
        optax.sgd(optax.cosine_decay_schedule(0.1, 20)),
    ),
    "a function of a user": lambda: optax.sgd(lambda step: 0.1 / (1 + step)),
    "MultiSteps": lambda: optax.MultiSteps(optax.adam(0.05), 2),
    "of attsvm": lambda: attsvm.optimizers.momentum(attsvm.optimizers.adam(0.1)),
    "an import path": lambda: "optax:lion",
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_classifier_with_any_optimiser_is_pickled_and_goes_on(name):
    arrays, labels = bags(T=4)
    rate = 0.05 if name == "an import path" else None
    model = AttentionClassifier(OPTIMIZERS[name](), learning_rate=rate, max_steps=10, random_state=0)
    fresh, fitted = pickle.loads(pickle.dumps(model)), model.fit(arrays, labels)
    copy = pickle.loads(pickle.dumps(fitted))
    assert (fresh.fit(arrays, labels).prompt_ == fitted.prompt_).all()
    assert (copy.decision_function(arrays) == fitted.decision_function(arrays)).all()
    assert (copy.partial_fit(arrays, labels).prompt_ == fitted.partial_fit(arrays, labels).prompt_).all()


def test_half_precision_is_read_as_float32_and_bfloat16_is_read():
    torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")
    arrays, labels = bags(T=4, dtype=np.float16)
    model = AttentionClassifier(max_steps=10, random_state=0)
    wide = [array.astype(np.float32) for array in arrays]
    expected = model.fit(wide, labels).decision_function(wide)
    whole = np.array(arrays)
    rounded = torch.tensor(whole).bfloat16()
    of_rounded = [array.float().numpy() for array in rounded]
    of_bfloat = model.fit(of_rounded, labels).decision_function(of_rounded)
    for X, result in (
        (arrays, expected),
        (whole, expected),
        (Sequences.from_padded(whole), expected),
        (list(rounded), of_bfloat),
        (rounded, of_bfloat),
        (jnp.asarray(of_rounded, jnp.bfloat16), of_bfloat),
        (torch.nn.Parameter(rounded), of_bfloat),
    ):
        np.testing.assert_array_equal(model.fit(X, labels).decision_function(X), result)
        assert model._state.parameters["p"].dtype == np.float32
    rows = whole[:, 0]
    found = model.fit(rows, labels).decision_function(rows)
    np.testing.assert_array_equal(found, model.fit(rows.astype(np.float32), labels).decision_function(rows))
    zarr = pytest.importorskip("zarr", reason="zarr (extra `sweeps`) is not installed")
    stored = Sequences.from_padded(zarr.array(whole))
    assert stored.table.dtype == np.float32
    np.testing.assert_array_equal(model.fit(stored, labels).decision_function(stored), expected)
