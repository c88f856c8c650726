"""Compiled programs are kept by JAX for later processes, and a cache that cannot be used disturbs nothing."""

import os
import subprocess
import sys

import jax
import pytest

import attsvm
from attsvm._utils.compiled_programs import remove_oldest

pytestmark = pytest.mark.slow

PROCESS = """
import sys
from attsvm._utils.compiled_programs import keep_programs
if "worker" in sys.argv:
    import jax
keep_programs()
if "full" in sys.argv:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
import jax, attsvm, numpy as np
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event) if event.endswith("/cache_hits") else None)
run = attsvm.train(attsvm.datasets.random_problem(3, 4, 5, seed=0), steps=50)
print(len(hits), run.weights.tobytes().hex())
"""


def home_in(folder):
    """An environment with a cache folder of its own, in which nothing else is set."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return environment | {name: str(folder) for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA")}


@pytest.fixture
def home(tmp_path):
    return home_in(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a first process, how many programs it read, and the bits of its weights."""
    folder = tmp_path_factory.mktemp("first")
    return folder, *trained(home_in(folder))


def trained(environment, *arguments):
    """How many programs the process read, and the bits of its weights; it printed nothing else."""
    code = [sys.executable, "-c", PROCESS, *arguments]
    found = subprocess.run(code, env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    number, bits = found.stdout.split()
    return int(number), bits


def kept(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_later_process_reads_the_programs_and_gives_the_same_bits(first):
    folder, read, bits = first
    home, programs = home_in(folder), kept(folder)
    assert (read, trained(home), trained(home, "worker")) == (0, (2, bits), (2, bits))
    assert kept(folder) == programs
    if os.name == "posix":
        assert programs[0].parent.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_the_user_has_set_is_used_as_it_is(home, tmp_path):
    mine = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "mine"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "60"}
    assert trained(home | mine)[0] == 0
    assert not kept(tmp_path)  # programs that took less than the user's 60 seconds are kept nowhere


def test_a_damaged_program_is_compiled_again(first):
    folder, _, bits = first
    whole = {path: path.read_bytes() for path in kept(folder)}  # a copy elsewhere would not be read at all
    try:
        for path, content in whole.items():
            path.write_bytes(content[: len(content) // 2])
        assert trained(home_in(folder)) == (0, bits)
    finally:
        for path, content in whole.items():
            path.write_bytes(content)


def test_a_folder_that_cannot_be_made_and_a_full_disk_disturb_nothing(first, home, tmp_path):
    bits = first[2]
    (tmp_path / "file").write_text("")
    assert trained(home_in(tmp_path / "file")) == (0, bits)
    if os.name == "posix":
        assert trained(home, "full") == (0, bits)


def test_what_was_not_used_for_longest_makes_room(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 - age, 500))
    remove_oldest(tmp_path, 250)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_the_library_changes_no_setting_of_jax():
    before = dict(jax.config.values)
    attsvm.train(attsvm.datasets.random_problem(3, 4, 5, seed=0), steps=2)
    assert jax.config.values == before
