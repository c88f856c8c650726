"""Result files are written whole or not at all."""

import numpy as np
import pytest

import attsvm
from attsvm._utils.reading import read_npz
from attsvm._utils.storage import atomic_write, write_npz


def test_an_interrupted_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "result.npz"
    write_npz(path, "run", {"a": np.arange(3)}, {"seed": 1})

    def interrupted():
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["result.npz"]
    arrays, meta = read_npz(path, "run")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert meta == {"kind": "run", "version": attsvm.__version__, "seed": 1}
    with pytest.raises(attsvm.ProblemError, match="expected a file of kind 'solution', got 'run'"):
        read_npz(path, "solution")
