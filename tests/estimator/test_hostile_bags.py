"""Hostile files of bags and models: refused in a line that names them, before they take memory or give a number."""

import gzip
import io
import json
import re
import warnings
import zipfile

import numpy as np
import pytest

import attsvm
from attsvm import AttentionClassifier, ProblemError, load_model
from attsvm.datasets import Sequences, read_bags, read_slides
from attsvm.estimator.pooling import ColumnExtremes

BAGS = np.random.default_rng(0).standard_normal((40, 3, 2))
LABELS = np.arange(40) % 2


def short(**options):
    return AttentionClassifier(max_steps=5, random_state=0, **options)


def test_what_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    pa, h5py = pytest.importorskip("pyarrow"), pytest.importorskip("h5py")
    pq, preprocessing = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("sklearn.preprocessing")
    pytest.importorskip("skops", reason="skops (extra `models`) is not installed")
    with gzip.open(tmp_path / "bags.csv.gz", "wb") as stream:
        stream.write(b"bag,label,mass\n" + b"b,1,0\n" * 10**6)
    zeros = pa.array(np.zeros(10**6))
    pq.write_table(pa.table({"bag": zeros, "mass": zeros}), tmp_path / "bags.parquet")
    with h5py.File(tmp_path / "slide.h5", "w") as file:
        file.create_dataset("features", shape=(10**11, 8), dtype="f4", chunks=(1000, 8))
    model = short(token_net=preprocessing.StandardScaler()).fit(list(BAGS), LABELS)
    model.token_net_.more = np.zeros(10**6)
    model.save(tmp_path / "model.npz")
    monkeypatch.setattr("attsvm._utils.memory.free_memory", lambda: 2**20)
    for name, read in {
        "bags.csv.gz": lambda path: read_bags(path, "bag"),
        "bags.parquet": lambda path: read_bags(path, "bag"),
        "slide.h5": lambda path: read_slides(path.parent),
        "model.npz": load_model,
    }.items():
        with pytest.raises(ProblemError, match=rf"{name}: .*fits into the free memory of 1 MiB, got [\d.]+ [MG]iB"):
            read(tmp_path / name)


def test_what_has_two_meanings_is_refused(tmp_path):
    member = io.BytesIO()
    np.save(member, BAGS)
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        warnings.simplefilter("ignore")  # of the name
        for _ in range(2):
            archive.writestr("tokens.npy", member.getvalue())
    (tmp_path / "twice.json").write_text('{"tokens": [[[1]]], "tokens": [[[2]]]}')
    (tmp_path / "twice.jsonl").write_text('{"bag": "a", "mass": 1, "mass": 2}\n')
    np.savez(tmp_path / "unnamed.npz", tokens=BAGS[0], bag=[0.0, np.nan, np.nan])
    for name, said in {
        "twice.npz": "expected one array of each name",
        "twice.json": "several values with the same name",
        "twice.jsonl": "several values with the same name",
        "unnamed.npz": "expected the bag of each token, got NaN",
    }.items():
        with pytest.raises(ProblemError, match=f"{name}: .*{said}"):
            read_bags(tmp_path / name, "bag" if name.endswith("jsonl") else None)
    with pytest.raises(ProblemError, match="offsets: expected increasing integers"):
        Sequences(np.eye(3), np.arange(3), np.array([0, 200, 3], np.uint8))


def test_a_changed_model_gives_no_number_and_no_traceback(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    np.savez("bags.npz", tokens=BAGS)
    for ensemble in (False, True):
        short(ensemble=ensemble).fit(list(BAGS), LABELS).save("model.npz")
        with np.load("model.npz") as archive:
            arrays = dict(archive)
        name = "model/ensemble_/members/0/coefficients" if ensemble else "model/intercept_"
        for changed, said in (
            (arrays[name] * np.nan, rf"changed\.npz: {name}: expected finite numbers, got nan"),
            (np.tile(arrays[name], 3).ravel().astype(str), r"changed\.npz: does not predict bags\.npz \(.*\)"),
        ):
            np.savez("changed.npz", **{**arrays, name: changed})
            code, out, error = command("predict", "changed.npz", "bags.npz", "--json")
            assert (code, out, error.count("\n")) == (2, "", 1), error
            assert error.startswith("attsvm: changed.npz: ")
            assert re.search(said, error), error


def test_numbers_of_any_size_are_fitted_or_refused():
    for size in (1e307, 1e-310):
        with pytest.raises(ProblemError, match=r"^X: expected numbers of at most 1e\+300 that differ by"):
            short().fit(list(BAGS * size), LABELS)
    extremes = [ColumnExtremes.of(Sequences.from_padded(BAGS * size), False) for size in (1.0, 2.0**900)]
    np.testing.assert_array_equal(extremes[0].scale * 2.0**900, extremes[1].scale)
    with pytest.raises(ProblemError, match=r"^tokens: expected mean tokens that are numbers"):
        attsvm.Problem(np.sign(BAGS) * 1.7e308, 2.0 * LABELS - 1).with_head("mean")


def test_labels_of_a_table_are_those_of_a_fit_to_integers(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    texts = [f"the film was {'good' if label else 'bad'}" for label in LABELS]
    attsvm.TextClassifier(max_steps=5).fit(texts, LABELS).save("model.npz")
    (tmp_path / "texts.csv").write_text(
        "text,label\n" + "".join(f"{t},{y}\n" for t, y in zip(texts, LABELS, strict=True))
    )
    code, out, error = command("predict", "model.npz", "texts.csv", "--json")
    assert code == 0, error
    found = json.loads(out)
    assert [one["label"] for one in found["predictions"]] == [str(label) for label in LABELS]
    assert found["accuracy"] == np.mean([one["predicted"] == one["label"] for one in found["predictions"]])
