"""Compiled programs on disk: read by later processes, kept apart, and never an obstacle."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

import attsvm
from attsvm import cache, compiling
from attsvm.errors import ProblemError
from attsvm.training.engine import program


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache of its own."""
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "programs"))
    monkeypatch.setattr(cache, "_failed", set())
    return tmp_path / "programs"


@pytest.fixture
def compilations(monkeypatch):
    """How often the compiler has run."""
    made = []
    compile_ = jax.stages.Lowered.compile
    monkeypatch.setattr(jax.stages.Lowered, "compile", lambda *a, **b: made.append(1) or compile_(*a, **b))
    return made


def tripled(x):
    return 3 * x


def call(options=(), function=tripled):
    """A new process would compile, or read, as this call does; it returns 6.0."""
    return float(compiling.compiled(function, (np.float32(0),), dict(options))(np.float32(2)))


def test_the_next_process_trains_without_compiling_with_the_same_bits_and_changes_no_setting(
    compilations, capfd, recwarn
):
    problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    runs, counts, before = [], [], dict(jax.config.values)
    for _ in range(2):
        program._compiled.cache_clear()
        runs.append(attsvm.train(problem, steps=50))
        counts.append(len(compilations))
    assert counts == [2, 2]
    assert np.array_equal(runs[0].weights, runs[1].weights)
    assert jax.config.values == before
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


_PROCESS = """
import sys, jax, numpy as np
from attsvm import compiling
made, compile_ = [], jax.stages.Lowered.compile
jax.stages.Lowered.compile = lambda *a, **b: made.append(1) or compile_(*a, **b)
x = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
solve = lambda x: jax.numpy.sin(jax.lax.fori_loop(0, 3, lambda _, y: jax.nn.softmax(y @ x), x))
program = compiling.compiled(solve, (x,), {})
print(len(made), np.asarray(program(x)).tobytes().hex())
"""


@pytest.mark.parametrize("jax_cache", [False, True])
def test_later_processes_give_the_same_bits_also_where_jax_keeps_programs(jax_cache, folder, tmp_path):
    def process():
        found = subprocess.run([sys.executable, "-c", _PROCESS], env=settings, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout.split()

    settings = dict(os.environ)
    if jax_cache:
        settings["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "jax")
        settings["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    first = process()
    if jax_cache:  # then the second process reads from JAX's cache, and must not write what it has read
        shutil.rmtree(folder, ignore_errors=True)
    later = [process() for _ in range(2 if jax_cache else 1)]
    assert all(bits == first[1] for _, bits in later)
    assert [int(made) for made, _ in (first, *later)] == ([1, 1, 1] if jax_cache else [1, 0])
    assert any((tmp_path / "jax").glob("*-cache")) == jax_cache


def test_a_function_is_compiled_once_for_each_shape(compilations):
    for _ in range(2):
        of_trees = compiling.by_shape(lambda pair: {"sum": pair[0] + pair[1]})
        for length in (2, 3, 2):
            x = np.arange(length, dtype=np.float32)
            assert np.array_equal(of_trees((x, 1 + x))["sum"], 1 + 2 * x)
    assert len(compilations) == 2


def test_arguments_that_are_not_used_do_not_mix_programs_up():
    for _ in range(2):
        for function, expected in ((lambda x, y: 3 * x, 6.0), (lambda x, y: 3 * y, 15.0)):
            arguments = np.float32(2), np.float32(5)
            assert float(compiling.compiled(function, arguments, {})(*arguments)) == expected


@pytest.mark.parametrize("what", ["nothing", "processor", "versions", "flags", "options", "settings"])
def test_another_processor_compiler_or_setting_has_programs_of_its_own(what, compilations, monkeypatch):
    call()
    processor = compiling._processor()
    if what == "processor":
        assert len(processor[-1].split()) > 5, "the features of this processor are not known"
        without_one = processor[0], " ".join(processor[-1].split()[:-1])
        monkeypatch.setattr(compiling, "_processor", lambda: without_one)
    elif what == "versions":
        monkeypatch.setattr(jax, "__version__", "0.0.1")
    elif what == "flags":
        monkeypatch.setattr(compiling, "_FLAGS", compiling._FLAGS + " --xla_cpu_max_isa=AVX2")
    elif what == "settings":
        optimised = jax.config.read("jax_disable_most_optimizations")
        jax.config.update("jax_disable_most_optimizations", not optimised)
    assert call({"xla_backend_optimization_level": 1} if what == "options" else ()) == 6.0
    assert len(compilations) == (1 if what == "nothing" else 2)


def packed(body):
    return hashlib.sha256(body).digest() + body


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: packed(zlib.compress(b"no program")),
        lambda whole: packed(b"not compressed"),
    ],
    ids=["empty", "cut", "one bit", "no program", "not compressed"],
)
def test_a_damaged_program_is_compiled_again_and_replaced(damage, folder, compilations, recwarn):
    call()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert [call(), call()] == [6.0, 6.0]
    assert len(compilations) == 2
    assert len(file.read_bytes()) == len(whole)
    assert not recwarn.list


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
def test_what_others_may_have_written_is_not_read(folder, compilations, monkeypatch):
    before = os.umask(0o002)
    try:
        call()
    finally:
        os.umask(before)
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    for path, safe in ((folder, 0o700), (file, 0o600)):
        for others in (0o020, 0o002):
            path.chmod(safe | others)
            cache._failed.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert cache.read(file.stem) is None
                assert cache.read(file.stem) is None
            # a folder that is of no use is warned of once; a single file is compiled again
            assert [str(one.message).partition(":")[0] for one in caught] == (
                [f"compiled programs are not kept in {folder}"] if path == folder else []
            )
        path.chmod(safe)
    assert cache.read(file.stem) is not None
    cache._failed.clear()
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    with pytest.warns(RuntimeWarning, match="it must be yours"):
        assert call() == 6.0
    assert len(compilations) == 2


def test_the_folder_may_be_below_the_home_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    cache.configure(folder="~/mine")
    assert cache.contents().folder == tmp_path / "mine"
    monkeypatch.setenv(cache.FOLDER, "~/theirs")
    assert cache.contents().folder == tmp_path / "theirs"


@pytest.mark.parametrize("obstacle", ["a file", "a full disk"])
def test_a_folder_that_cannot_be_written_gives_one_warning(obstacle, folder, monkeypatch):
    if obstacle == "a file":
        folder.write_text("")
    else:

        def full(path, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(RuntimeWarning, match="cannot be kept") as found:
        assert call() == 6.0
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call() == 6.0
    assert obstacle == "a file" or not list(folder.iterdir())


def test_what_cannot_be_read_back_is_not_kept(folder):
    def called_back(x):
        return jax.pure_callback(lambda y: 3 * np.asarray(y), x, x)

    assert call(function=called_back) == 6.0
    assert not folder.exists()


def test_nothing_is_kept_where_the_flags_are_in_a_file_or_jax_cannot_write_a_program(folder, monkeypatch):
    def fail(program):
        raise RuntimeError("not implemented for this device")

    with monkeypatch.context() as patch:
        patch.setattr(compiling, "serialize", fail)
        assert call() == 6.0
    monkeypatch.setattr(compiling, "_FLAGS", "flags.txt")
    assert call() == 6.0
    assert not folder.exists()


def test_programs_that_were_not_used_for_longest_make_room(folder, monkeypatch):
    noise = np.random.default_rng(0)
    monkeypatch.setenv(cache.MEGABYTES, "0.0035")
    names = [letter * 64 for letter in "abcd"]
    written = {name: noise.bytes(1000) for name in names}
    folder.mkdir(0o700)
    not_ours = {"notes.txt", "game.program"}
    for name in not_ours:
        (folder / name).write_bytes(noise.bytes(4000))
        os.utime(folder / name, (0, 0))
    for time, name in enumerate(names[:3]):
        cache.write(name, written[name])
        os.utime(folder / f"{name}.program", (time, time))
    assert cache.read(names[0]) == written[names[0]]
    cache.write(names[3], written[names[3]])
    assert [cache.read(name) for name in names] == [written[names[0]], None, written[names[2]], written[names[3]]]
    cache.write("e" * 64, noise.bytes(4000))  # larger than the cache
    assert cache.contents().num_programs == 3
    assert cache.contents().megabytes <= 0.0035
    assert cache.clear() == 3
    assert {file.name for file in folder.iterdir()} == not_ours


def test_writers_and_readers_at_once_see_whole_programs(monkeypatch):
    monkeypatch.setenv(cache.MEGABYTES, "0.25")
    expected = {name * 64: np.random.default_rng(i).bytes(60_000) for i, name in enumerate("abcdef")}
    wrong = []

    def work():
        for name, whole in [*expected.items()] * 10:
            cache.write(name, whole)
            found = cache.read(name)
            if found not in (None, whole):
                wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not cache._failed


def test_settings_turn_it_off_and_are_checked(folder, monkeypatch):
    for name in (cache.ENABLED, cache.MEGABYTES):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    cache.configure(enabled=False, folder=folder, max_megabytes=2)
    assert call() == 6.0
    assert cache.contents() == cache.Contents(folder, False, 0, 0.0, 2.0)
    with pytest.raises(ProblemError, match="max_megabytes: expected a number >= 0, got -1"):
        cache.configure(max_megabytes=-1)
    monkeypatch.setenv(cache.MEGABYTES, "much")
    with pytest.raises(ProblemError, match="ATTSVM_CACHE_MB: expected a number >= 0, got 'much'"):
        cache.contents()
    monkeypatch.setenv(cache.ENABLED, "no")
    with pytest.raises(ProblemError, match="ATTSVM_CACHE: expected on or off, got 'no'"):
        cache.enabled()


def test_the_command_shows_and_clears(folder, command):
    cache.write("a" * 64, b"program")
    code, out, _ = command("cache", "--json")
    shown = json.loads(out)
    assert (code, shown["folder"], shown["num_programs"]) == (0, str(folder), 1)
    assert str(folder) in command("cache")[1]
    assert command("cache", "clear")[1] == f"removed 1 programs from {folder}\n"
    assert not folder.exists()
