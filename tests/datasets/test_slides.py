"""Folders of features of slides, written as CLAM and TRIDENT write them."""

import numpy as np
import pytest

from attsvm import AttentionClassifier, ProblemError
from attsvm.datasets import read_slides, sequences
from attsvm.datasets.stored import JoinedTable

h5py = pytest.importorskip("h5py", reason="h5py (extra `slides`) is not installed")
torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")


@pytest.fixture
def features():
    generator = np.random.default_rng(0)
    found = {f"slide_{i}": generator.normal(size=(20 + i, 6)).astype(np.float32) for i in range(24)}
    for i, array in enumerate(found.values()):
        array[3] += 3 * (i % 2)
    return found


def write_h5(path, features, coords=None):
    """As ``save_h5`` of TRIDENT: chunks of one row, which can be extended."""
    with h5py.File(path, "w") as file:
        for name, array in {"features": features, "coords": coords}.items():
            if array is not None:
                shape = (None, *array.shape[1:])
                file.create_dataset(name, data=array, maxshape=shape, chunks=(1, *array.shape[1:]))


def write_table(path, rows):
    path.write_text(
        "case_id,slide_id,label\n" + "".join(f"p{i},{name},{label}\n" for i, (name, label) in enumerate(rows))
    )
    return path


@pytest.mark.parametrize("form", ["pt", "old pt", "h5", "h5 of bags"])
def test_slides_give_the_classifier_of_their_arrays(form, features, tmp_path, monkeypatch):
    folder = tmp_path / ("pt_files" if "pt" in form else "")
    folder.mkdir(exist_ok=True)
    for name, array in features.items():
        if "pt" in form:
            torch.save(torch.from_numpy(array), folder / f"{name}.pt", _use_new_zipfile_serialization=form == "pt")
        else:
            write_h5(folder / f"{name}.h5", array[None] if "bags" in form else array)
    rows = [(name, ["normal", "tumor"][i % 2]) for i, name in enumerate(reversed(features))]
    table = write_table(tmp_path / "slides.csv", rows)
    in_memory = read_slides(tmp_path, table)
    monkeypatch.setattr(sequences, "JOINED", 0)
    on_disk = read_slides(tmp_path, table)
    assert isinstance(on_disk.bags.table, JoinedTable)
    assert on_disk.bags.names.tolist() == [name for name, _ in rows]
    assert on_disk.labels.tolist() == [label for _, label in rows]
    model, arrays = AttentionClassifier(max_steps=30, random_state=0), [features[name] for name, _ in rows]
    expected = model.fit(arrays, on_disk.labels).decision_function(arrays)
    for slides in (in_memory, on_disk):
        for bag, array in zip(slides.bags, arrays, strict=True):
            np.testing.assert_array_equal(bag, array)
        np.testing.assert_array_equal(model.fit(slides.bags, slides.labels).decision_function(slides.bags), expected)


def test_half_precision_coordinates_and_tables(features, tmp_path):
    array, coords = features["slide_3"], 256 * np.arange(46).reshape(23, 2)
    write_h5(tmp_path / "a.h5", array.astype(np.float16), coords)
    torch.save(torch.from_numpy(array).bfloat16(), tmp_path / "b.pt")
    slides = read_slides(tmp_path)
    assert slides.labels is None
    assert slides.bags.table.dtype == np.float32
    np.testing.assert_array_equal(slides.bags[0], array.astype(np.float16))
    np.testing.assert_allclose(slides.bags[1], array, rtol=2**-8)
    np.testing.assert_array_equal(slides.coordinates(0), coords)
    with pytest.raises(ProblemError, match=r"b\.pt: expected an HDF5 file with the coordinates of patches"):
        slides.coordinates(1)
    pandas = pytest.importorskip("pandas", reason="pandas (extra `frames`) is not installed")
    named = read_slides(
        tmp_path, pandas.DataFrame({"image": ["b", "a"], "grade": [2, 1]}), slide="image", target="grade"
    )
    assert (named.bags.names.tolist(), named.labels.tolist()) == (["b", "a"], [2, 1])
    assert read_slides(tmp_path, write_table(tmp_path / "t.csv", [("a", 1), ("b", 0)])).labels.tolist() == [1, 0]


def test_what_is_wrong_with_a_slide_is_said(features, tmp_path):
    array = features["slide_0"]
    write_h5(tmp_path / "good.h5", array)
    write_h5(tmp_path / "empty.h5", np.empty((0,), np.float32))
    write_h5(tmp_path / "narrow.h5", array[:, :4])
    write_h5(tmp_path / "deep.h5", array.reshape(2, 10, 6))
    (tmp_path / "damaged.h5").write_bytes(b"no HDF5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["coords"] = np.ones((3, 2))
    torch.save({"features": torch.ones(3, 6)}, tmp_path / "dict.pt")
    (tmp_path / "broken.pt").write_bytes(b"no tensor")
    said = {
        "empty": r"empty\.h5: expected features of at least one patch, got none; leave out this slide",
        "narrow": r"narrow\.h5: expected 6 features as in good\.h5, got 4",
        "deep": r"deep\.h5: expected features of shape \(T, d\) or \(1, T, d\), got \(2, 10, 6\)",
        "damaged": r"damaged\.h5: cannot be read as HDF5",
        "other": r"other\.h5: expected a dataset 'features', got coords",
        "dict": r"dict\.pt: cannot be read as a PyTorch tensor \(expected a tensor, got dict\)",
        "broken": r"broken\.pt: cannot be read as a PyTorch tensor",
        "absent": r"expected a file \.h5 or \.pt for each slide, got none for absent",
        "good": r"table: expected each slide once, got 'good' in several rows",
        "": r"table: expected 'slide_id' and 'label' in each row",
    }
    for name, message in said.items():
        with pytest.raises(ProblemError, match=message):
            read_slides(tmp_path, write_table(tmp_path / "slides.csv", [("good", 0), (name, 1)]))
    (tmp_path / "slides.csv").write_text("slide,label\ngood,1\n")
    with pytest.raises(ProblemError, match="expected a column 'slide_id'"):
        read_slides(tmp_path, tmp_path / "slides.csv")
    (tmp_path / "slides.csv").write_text("slide_id,label\ngood,1\nbad\n")
    with pytest.raises(ProblemError, match=r"slides\.csv: line 3: expected 2 fields, as in the header, got 1"):
        read_slides(tmp_path, tmp_path / "slides.csv")
    with pytest.raises(ProblemError, match="folder: expected a folder of files"):
        read_slides(tmp_path / "nowhere")
