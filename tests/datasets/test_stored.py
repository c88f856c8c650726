"""Tables that are read in parts."""

import numpy as np

from attsvm.datasets.stored import JoinedTable, StoredTable, in_blocks


def test_a_joined_table_has_the_rows_of_its_matrices(tmp_path):
    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(size, 3)).astype(np.float32) for size in (4, 1, 7, 5)]
    np.save(tmp_path / "part.npy", parts[2])
    table = JoinedTable(
        [parts[0], parts[1], np.load(tmp_path / "part.npy", mmap_mode="r"), StoredTable(parts[3][None])]
    )
    whole = np.concatenate(parts)
    assert table.shape == whole.shape
    assert table.dtype == np.float32
    for which in [
        slice(None),
        slice(1, 3),
        slice(3, 12),
        slice(2, 2),
        slice(0, 17, 4),
        [],
        [0, 16, 5, 5, 4, 11],
        [9, 10],
    ]:
        which = which if isinstance(which, slice) else np.array(which, int)
        np.testing.assert_array_equal(table[which], whole[which])
    assert np.shares_memory(table[1:3], parts[0])
    assert JoinedTable([parts[0], np.ones((2, 3), int)]).dtype == np.float64
    rows = np.array([0, 1, 2, 9, 13])
    found = np.concatenate([vectors.copy() for _, vectors in in_blocks(table, rows)])
    np.testing.assert_array_equal(found, whole[rows])
