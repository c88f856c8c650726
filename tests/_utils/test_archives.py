"""Damaged and hostile files: every reader refuses them with one line that names the file."""

import io
import json
import os
import socket
import struct
import zipfile

import numpy as np
import pytest

import attsvm
from attsvm import Problem, ProblemError
from attsvm._utils.archives import META, read_npy, read_npz, write_npz
from attsvm._utils.files import read_text
from attsvm.datasets import random_problem

PROBLEM = random_problem(2, 3, 2, seed=0)


def npy(array, **changes):
    """The bytes of an .npy file; ``changes`` replace entries of its header."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape, **changes}
    text = repr(header).encode() + b"\n"
    data = stream.getvalue()[-array.nbytes :] if array.nbytes else b""
    return np.lib.format.MAGIC_PREFIX + b"\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(path, compression=zipfile.ZIP_DEFLATED, **members):
    with zipfile.ZipFile(path, "w", compression) as stream:
        for name, content in members.items():
            stream.writestr(f"{name}.npy", content)


def flagged(path, at, value):
    """Set a field of every local and central header of a zip file: their offsets differ by 2."""
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", at), (b"PK\x01\x02", at + 2)):
        place = content.find(signature)
        while place >= 0:
            content[place + offset : place + offset + 2] = struct.pack("<H", value)
            place = content.find(signature, place + 4)
    path.write_bytes(content)


def damaged_data(path):
    content = path.read_bytes()
    at = content.find(b"tokens.npy") + len(b"tokens.npy") + 20
    path.write_bytes(content[:at] + b"\xff" * 40 + content[at + 40 :])


def pickled(path):
    np.savez(path, tokens=np.array([print], dtype=object))


DAMAGES = {
    "deflated data": damaged_data,
    "an encrypted member": lambda path: flagged(path, 6, 1),
    "an unknown compression": lambda path: flagged(path, 8, 97),
    "a bare array": lambda path: path.write_bytes(npy(np.zeros((2, 3, 2)))),
    "a shape of 72 TiB": lambda path: archive(path, tokens=npy(np.zeros((2, 3, 2)), shape=(9_895_604_649_984,))),
    "a negative shape": lambda path: archive(path, tokens=npy(np.zeros((2, 3, 2)), shape=(-2, -6))),
    "a header that is no literal": lambda path: archive(path, tokens=npy(np.zeros(3), shape="open")),
    "dates": lambda path: archive(path, tokens=npy(np.zeros(3, "M8[s]"))),
    "pickled objects": pickled,
    "an empty file": lambda path: path.write_bytes(b""),
    "a text": lambda path: path.write_text("tokens,labels\n"),
    "half a file": lambda path: path.write_bytes(path.read_bytes()[:-40]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_archive_that_cannot_be_read_is_one_line(tmp_path, damage):
    path = tmp_path / "problem.npz"
    PROBLEM.save(path)
    DAMAGES[damage](path)
    with pytest.raises(ProblemError) as raised:
        Problem.load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_what_unpacks_to_more_than_the_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("attsvm._utils.memory.free_memory", lambda: 2**20)
    archive(tmp_path / "bomb.npz", tokens=npy(np.zeros(2**16)), more=npy(np.zeros(2**16 + 1)))
    archive(tmp_path / "stated.npz", tokens=npy(np.zeros((2, 3, 2)), shape=(2**60, 3)))
    (tmp_path / "stated.npy").write_bytes(npy(np.zeros(3), shape=(2**60,)))
    assert (tmp_path / "bomb.npz").stat().st_size < 2**14
    for read, name, size in (
        (Problem.load, "bomb.npz", "1 MiB"),
        (Problem.load, "stated.npz", r"[\d.e+]+ PiB"),
        (read_npy, "stated.npy", "8192 PiB"),
    ):
        with pytest.raises(ProblemError, match=rf"{name}: expected content that fits .* 1 MiB, got {size}$"):
            read(tmp_path / name)
    archive(tmp_path / "fits.npz", tokens=npy(np.zeros(2**16)))
    assert read_npz(tmp_path / "fits.npz")[0]["tokens"].shape == (2**16,)


@pytest.mark.parametrize("values", [[print], [[1.0], [1.0, 2.0]], [None]])
def test_an_array_of_objects_is_refused_by_its_name(tmp_path, values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    np.savez(tmp_path / "problem.npz", labels=np.ones(1), tokens=array)
    np.save(tmp_path / "alone.npy", array)
    expected = "expected an array of numbers, booleans or strings, got one of objects"
    for read, place, name in ((Problem.load, "problem.npz", ": tokens"), (read_npy, "alone.npy", "")):
        with pytest.raises(ProblemError) as raised:
            read(tmp_path / place)
        assert str(raised.value) == f"{tmp_path / place}{name}: {expected}"


@pytest.mark.parametrize(
    "meta", [b"{", b"\xff\xfe", b"[1]", b"3", b"1" * 5001, b"[" * 100_000, b'{"kind": ["problem"]}', b"\x00"]
)
def test_damaged_meta_data_are_one_line(tmp_path, meta):
    path = tmp_path / "problem.npz"
    np.savez(path, **{META: np.frombuffer(meta, np.uint8)}, tokens=PROBLEM.tokens)
    with pytest.raises(ProblemError, match=r"problem\.npz: (its metadata|expected a file of kind)"):
        Problem.load(path)


def test_an_archive_holds_what_was_written_and_is_of_one_kind(tmp_path):
    path = tmp_path / "result.npz"
    write_npz(path, "run", {"a": np.arange(3)}, {"seed": 1})
    arrays, meta = read_npz(path, "run")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert meta == {"kind": "run", "version": attsvm.__version__, "seed": 1}
    with pytest.raises(ProblemError, match="expected a file of kind 'solution', got 'run'"):
        read_npz(path, "solution")


def test_what_is_no_regular_file_is_refused_without_being_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo.npz")
    (tmp_path / "link.npz").symlink_to(tmp_path / "fifo.npz")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s.npz"))
        for name, kind in (("fifo.npz", "FIFO"), ("link.npz", "FIFO"), ("s.npz", "socket"), (".", "folder")):
            for read in (Problem.load, read_npy, read_text):
                with pytest.raises(ProblemError, match=f"expected a file, got a {kind}"):
                    read(tmp_path / name)
    for absent in ("absent.npz", "s.npz/absent", "null\0.npz"):
        with pytest.raises(ProblemError, match=r"no such file|cannot be read"):
            read_npz(tmp_path / absent)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A file of each kind: its class, arrays and meta data."""
    path = tmp_path_factory.mktemp("results") / "result.npz"
    found = []
    for result in (
        attsvm.solve_svm(PROBLEM, attsvm.optimal_tokens(PROBLEM)),
        attsvm.train(PROBLEM, steps=2),
        attsvm.regularization_path(PROBLEM, [1.0, 2.0]),
    ):
        result.save(path)
        found.append((type(result), *read_npz(path)))
    return found


def refuses(kind, path, arrays, meta):
    """Whether a changed file is refused in one line that names it; if not, its result can be printed."""
    np.savez(path, **arrays, **{META: np.frombuffer(json.dumps(meta).encode(), np.uint8)})
    try:
        repr(kind.load(path))
    except ProblemError as error:
        return str(error).startswith(f"{path}: ") and "\n" not in str(error)
    return False


CHANGES = {
    "words for numbers": lambda array: np.full(array.shape, "x"),
    "one axis more": lambda array: array[None],
    "no axis": lambda array: array.ravel()[0] if array.ndim else array[None],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_result_with_an_array_of_another_type_or_shape_is_refused(tmp_path, results, change):
    accepted = [
        (kind.kind, name)
        for kind, arrays, meta in results
        for name, array in arrays.items()
        if not refuses(kind, tmp_path / "r.npz", {**arrays, name: CHANGES[change](array)}, meta)
    ]
    # what has a dict's freedom, or any number of axes behind those of the batch
    free = ("stats/", "optimizer_state/", "parameters/", "history/")
    several = ("direction", "dual", "support", "selected", "weights", "probability", "limit")
    allowed = free if change != "one axis more" else (*free, *several)
    assert [place for place in accepted if not place[1].startswith(allowed)] == []


def test_a_result_without_one_of_its_arrays_is_refused(tmp_path, results):
    for kind, arrays, meta in results:
        for name in arrays:
            if "/" not in name and name != "log_scale":  # the runs of 0.1 have none: their scale is 1
                rest = {key: array for key, array in arrays.items() if key != name}
                assert refuses(kind, tmp_path / "r.npz", rest, meta), name


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [[1], [1, 2]], {"name": 1}, 1e400, True])
def test_a_result_with_other_meta_data_is_refused_or_can_be_printed(tmp_path, results, value):
    refused = sum(
        refuses(kind, tmp_path / "r.npz", arrays, {**meta, name: value})
        for kind, arrays, meta in results
        for name in meta
    )
    assert refused > 5


def test_an_incomplete_copy_is_called_one(tmp_path):
    write_npz(tmp_path / "whole.npz", "problem", {"tokens": np.arange(6.0)})
    content = (tmp_path / "whole.npz").read_bytes()
    for kept in (len(content) // 2, len(content) - 10):
        (tmp_path / "part.npz").write_bytes(content[:kept])
        with pytest.raises(
            ProblemError, match=r"part.npz: not a readable .npz archive .the file is cut off; copy it again."
        ):
            read_npz(tmp_path / "part.npz")
