"""What importing the package costs and pulls in, and that result files are written whole or not at all."""

import subprocess
import sys

import numpy as np
import pytest

import attsvm
from attsvm.storage import atomic_write, read_npz, write_npz


def test_import_pulls_in_nothing_heavy_and_leaves_jax_in_single_precision():
    code = (
        "import sys, attsvm, jax.numpy as jnp\n"
        "heavy = {'torch', 'matplotlib', 'sklearn', 'pandas', 'cvxpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert jnp.zeros(1, float).dtype == 'float32'\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_everything_exported_exists_and_is_documented():
    for name in attsvm.__all__:
        assert getattr(attsvm, name).__doc__, name


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
    with pytest.raises(attsvm.ProblemError, match="holds a run, not a solution"):
        read_npz(path, "solution")
