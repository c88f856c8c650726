"""The folder of a result: whole or not there, and never in the place of something else."""

import pytest

from attsvm import ProblemError
from attsvm.report.claim import claim_folder


def write_result(folder, text):
    (folder / "result.json").write_text(text)
    (folder / "figures").mkdir()


@pytest.fixture
def out(tmp_path):
    """A folder with an earlier result, alone in its parent."""
    out = tmp_path / "deep" / "out"
    with claim_folder(out) as hidden:
        write_result(hidden, "first")
        (hidden / "run.npz").touch()
    return out


def test_force_replaces_a_result_as_a_whole(out):
    with claim_folder(out, force=True) as hidden:
        write_result(hidden, "second")
        assert (out / "result.json").read_text() == "first", "the old one stays until the new one is whole"
    assert {path.name for path in out.iterdir()} == {"result.json", "figures"}
    assert (out / "result.json").read_text() == "second"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_earlier_result(out, error):
    def fail_midway():
        with claim_folder(out, force=True) as hidden:
            write_result(hidden, "half")
            raise error

    with pytest.raises(error):
        fail_midway()
    assert (out / "result.json").read_text() == "first"
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path):
    out = tmp_path / "out"

    def come_late():
        with claim_folder(out) as hidden:
            write_result(hidden, "late")
            out.mkdir()
            (out / "theirs").touch()

    with pytest.raises(ProblemError, match="exists already"):
        come_late()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]


@pytest.mark.parametrize("stranger", ["thesis.tex", "figures.bak"])
def test_force_refuses_a_folder_with_strangers(out, stranger):
    (out / stranger).touch()
    with pytest.raises(ProblemError, match=f"holds more than a result \\({stranger}\\)"), claim_folder(out, force=True):
        pass
    assert (out / "result.json").read_text() == "first"


def test_force_takes_an_empty_folder_and_refuses_a_file(tmp_path):
    (tmp_path / "empty").mkdir()
    with claim_folder(tmp_path / "empty", force=True) as hidden:
        write_result(hidden, "new")
    assert (tmp_path / "empty" / "result.json").read_text() == "new"
    (tmp_path / "file").write_text("kept")
    with (
        pytest.raises(ProblemError, match="expected a folder, got a file"),
        claim_folder(tmp_path / "file", force=True),
    ):
        pass
    assert (tmp_path / "file").read_text() == "kept"
