"""Tables that stay on disk give the same classifier as those in memory, and are read in parts."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from attsvm import AttentionClassifier, DetectorClassifier, ProblemError
from attsvm.datasets import Sequences, stored
from attsvm.estimator import coordinates, ranges

MODELS = [AttentionClassifier(max_steps=50, random_state=0), DetectorClassifier(3, max_steps=50, random_state=0)]


@pytest.fixture(scope="module")
def padded():
    generator = np.random.default_rng(0)
    tokens, mask = generator.normal(size=(70, 6, 4)).astype(np.float32), generator.random((70, 6)) < 0.8
    mask[:, 2] = True
    labels = np.arange(70) % 2
    tokens[labels == 1, 2, 0] += 3
    # padding may hold anything
    tokens[~mask] = np.nan
    return tokens, mask, labels


@pytest.fixture(params=["memmap", "zarr", "dask", "h5py"])
def on_disk(request, padded, tmp_path):
    tokens = padded[0]
    if request.param == "memmap":
        np.save(tmp_path / "tokens.npy", tokens)
        return np.load(tmp_path / "tokens.npy", mmap_mode="r")
    if request.param == "dask":
        dask = pytest.importorskip("dask.array", reason="Dask (extra `sweep`) is not installed")
        return dask.from_array(tokens, chunks=(8, 6, 4))
    if request.param == "h5py":
        h5py = pytest.importorskip("h5py", reason="h5py (extra `slides`) is not installed")
        return h5py.File(tmp_path / "tokens.h5", "w").create_dataset("tokens", data=tokens, chunks=(8, 6, 4))
    zarr = pytest.importorskip("zarr", reason="zarr (extra `sweep`) is not installed")
    return zarr.create_array(tmp_path / "tokens.zarr", data=tokens, chunks=(8, 6, 4))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_padded_array_on_disk_gives_the_same_classifier(padded, on_disk, model):
    tokens, mask, labels = padded
    in_memory = Sequences.from_padded(tokens, mask)
    expected = model.fit(in_memory, labels).decision_function(in_memory)
    found = Sequences.from_padded(on_disk, mask)
    assert (pickle.loads(pickle.dumps(model)).fit(found, labels).decision_function(found) == expected).all()
    if isinstance(on_disk, np.ndarray):
        return
    with pytest.raises(
        ProblemError, match=r"got (Array|Dataset); write Sequences\.from_arrays, Sequences\.from_padded"
    ):
        model.fit(on_disk, labels)


def test_a_stored_table_is_read_in_parts_and_never_as_a_whole(padded, on_disk, monkeypatch):
    tokens, mask, _ = padded
    monkeypatch.setattr(stored, "ROWS_AT_ONCE", 60)
    found = Sequences.from_padded(on_disk, mask)
    if isinstance(on_disk, np.ndarray):
        # float32 as it is in the file, and no copy
        assert np.shares_memory(found.table, on_disk)
        return
    kind = type(found.table)
    largest, read = [], kind._read
    monkeypatch.setattr(kind, "_read", lambda self, rows: largest.append(len(rows)) or read(self, rows))
    rows = np.array([7, 3, 3, 400])
    assert (found.table[rows] == tokens.reshape(-1, 4)[rows]).all() or not mask.reshape(-1)[rows].all()
    Sequences.from_padded(on_disk, mask)
    assert max(largest) <= 60 // 6 + 3
    assert found.table.shape == (420, 4)
    assert found.table.dtype == np.float32


@pytest.mark.parametrize("model", MODELS)
def test_a_fit_never_reads_rows_from_all_over_a_file_at_once(model, tmp_path, monkeypatch):
    """A request of rows that are far apart maps the file between them into the memory, too."""
    zarr = pytest.importorskip("zarr", reason="zarr (extra `sweep`) is not installed")
    tokens = np.random.default_rng(0).normal(size=(6000, 3)).astype(np.float32)
    monkeypatch.setattr(stored, "ROWS_AT_ONCE", 60)
    for module, name in ((coordinates, "SAMPLED"), (ranges, "FITTED"), (ranges, "COMPARED")):
        monkeypatch.setattr(module, name, 100)
    array = zarr.create_array(tmp_path / "tokens.zarr", data=tokens, chunks=(60, 3))
    kind = type(Sequences(array, [0], [0, 1]).table)
    spans, read = [], kind.__getitem__

    def spied(self, which):
        rows = np.arange(len(self))[which]
        spans.append(np.ptp(rows) if rows.size else 0)
        return read(self, which)

    monkeypatch.setattr(kind, "__getitem__", spied)
    bags = Sequences(array, np.arange(6000), np.arange(0, 6001, 100))
    clone(model).set_params(ensemble=False).fit(bags, np.arange(60) % 2).predict(bags)
    assert max(spans) <= stored.DENSE * 60


def test_integers_on_disk_and_what_is_refused(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr (extra `sweep`) is not installed")
    counts = np.random.default_rng(0).integers(9, size=(50, 3))
    stored = zarr.create_array(tmp_path / "counts.zarr", data=counts, chunks=(7, 3))
    found = Sequences(stored, [4, 0, 4, 49], [0, 2, 4])
    assert found.table.dtype == np.float64
    assert (found[0] == counts[[4, 0]]).all()
    assert (found[1] == counts[[4, 49]]).all()
    numbers = zarr.create_array(tmp_path / "numbers.zarr", data=np.array([[1.0, 2.0], [3.0, np.inf]]))
    with pytest.raises(ProblemError, match=r"^X: expected finite numbers, got inf in token 0 of sequence 1, column 1;"):
        MODELS[0].fit(Sequences(numbers, [0, 1], [0, 1, 2]), [0, 1])
    # a row that does not occur may hold anything
    assert len(MODELS[0].fit(Sequences(numbers, [0, 0], [0, 1, 2]), [0, 1]).classes_) == 2
    flat = zarr.create_array(tmp_path / "flat.zarr", data=np.ones(3))
    with pytest.raises(ProblemError, match=r"^table: expected real numbers of shape \(V, d\)"):
        Sequences(flat, [0], [0, 1])
