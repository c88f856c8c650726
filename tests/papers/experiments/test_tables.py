"""Tables of rows to train on and to test on."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attsvm import ProblemError
from attsvm.papers.experiments.tables import read_splits


@pytest.fixture
def folder_of(tmp_path):
    def write(labels):
        table = pa.table({"text": ["words"] * len(labels), "label": labels})
        for split in ("train", "test"):
            pq.write_table(table, tmp_path / f"{split}.parquet")
        return str(tmp_path)

    return write


def test_labels_are_classes(folder_of):
    train, test = read_splits(folder_of(pa.array([0, 2, 1], pa.uint64())), "text")
    for split in (train, test):
        np.testing.assert_array_equal(split.labels, [0, 2, 1])


@pytest.mark.parametrize("label", [pa.array([2**63], pa.uint64()), pa.array([-1]), pa.array([0.5]), pa.array([True])])
def test_a_label_that_is_no_class_is_refused_with_its_row(folder_of, label):
    with pytest.raises(ProblemError, match=r"row 0, counted from 0: expected a class 0, 1, ..., got the label"):
        read_splits(folder_of(label), "text")
