"""What the tests share: the reference numbers, and the hypothesis profile."""

import gc
import json
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits

from oracles.schemas import check_result

SHARED = Path(__file__).parents[1].parent / "shared"

# the tests run side by side: one thread each for linear algebra and PyTorch, also in the processes that they start
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
threadpool_limits(1, user_api="blas")
# some virtual machines announce AMX and stop a process that uses it, which PyTorch does for products in bfloat16
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# a process that a test starts compiles the source of attsvm only if none has before
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# a program is compiled in one piece: the same code, in three quarters of the time of several pieces side by side; and
# by the older of the compiler's two loop emitters, in half of the time of the newer, if a program does not name its own
COMPILING = "--xla_cpu_parallel_codegen_split_count=1"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # 0.11.2 has one loop emitter
    COMPILING += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {COMPILING}".strip()
# tracing makes many objects, of which few are garbage in a cycle
gc.set_threshold(50_000, 20, 50)

# one cache of compiled programs for the workers and the processes that tests start, empty at first
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="attsvm-tests-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

settings.register_profile("attsvm", deadline=None, derandomize=True)
settings.load_profile("attsvm")


@pytest.fixture(autouse=True)
def own_digits():
    """Let no test leave its precision of mpmath to the next one."""
    with mpmath.workdps(mpmath.mp.dps):
        yield


@pytest.fixture(scope="session")
def reference():
    """Load a file of reference numbers, or skip where they are absent."""

    def load(name: str):
        path = SHARED / "reference" / name
        if not path.exists():
            pytest.skip(f"reference numbers {name} are not beside the checkout")
        return json.loads(path.read_text()) if path.suffix == ".json" else np.load(path, allow_pickle=False)

    return load


def pytest_unconfigure():
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


def pytest_collection_finish():
    """Let no search for garbage go through what importing made, a million objects: PyTorch's trainer searches."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Let LLVM optimise nothing, except in tests marked ``optimized``.

    Most tests make few steps, which take less time than optimising them. Fixtures of a module are part of its first
    test, so this is no fixture.
    """
    import jax

    jax.config.update("jax_disable_most_optimizations", item.get_closest_marker("optimized") is None)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run ``attsvm`` with these arguments: exit status, stdout, stderr."""
    from attsvm.cli.main import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attsvm", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def refused(command):
    """That ``attsvm`` with these arguments ends with one line on stderr, in which a pattern is found."""

    def check(said: str, *arguments: object) -> None:
        status, out, err = command(*arguments)
        assert (status, out) == (2, "")
        assert re.fullmatch(rf"attsvm: .*{said}.*\n", err), err

    return check


@pytest.fixture(autouse=True, scope="session")
def results_follow_their_schemas():
    """Check every result that a command or a figure makes in a test against the schema of its name."""
    from attsvm.pages import plain

    jsonable_dict = plain.jsonable_dict

    def checked(values):
        made = jsonable_dict(values)
        if "schema" in made:
            check_result(made)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "jsonable_dict", checked)
        yield
