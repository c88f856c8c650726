"""A file or a folder is written completely or not at all."""

import os

import pytest

from attsvm._utils.files import (
    ENDING,
    atomic_write,
    finish,
    is_finished,
    moved_aside,
    remove_unfinished,
    unfinished,
    written_by_workers,
)


def names(folder):
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_write_keeps_the_old_file_and_leaves_no_other(tmp_path, error):
    path = tmp_path / "result.npz"
    path.write_bytes(b"old")

    def interrupted():
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert names(tmp_path) == {"result.npz"}
    assert path.read_bytes() == b"old"
    assert not is_finished(path)


def test_a_file_that_is_written_has_the_permissions_of_any_new_file(tmp_path):
    with atomic_write(tmp_path / "result") as stream:
        stream.write(b"new")
        assert len(names(tmp_path)) == 1
        assert next(iter(names(tmp_path))).endswith(ENDING)
    (tmp_path / "other").touch()
    assert (tmp_path / "result").stat().st_mode == (tmp_path / "other").stat().st_mode
    assert is_finished(tmp_path / "result")


def test_an_error_of_the_disk_has_the_name_of_the_file(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, atomic_write(tmp_path / "absent" / "result"):
        pass
    assert raised.value.filename == str(tmp_path / "absent" / "result")


def test_a_folder_takes_the_place_of_another(tmp_path):
    target = tmp_path / "fit"
    target.mkdir()
    (target / "old").touch()
    with unfinished(target) as folder:
        folder.mkdir()
        (folder / "new").touch()
        finish(folder, target)
    assert names(tmp_path) == {"fit"}
    assert names(target) == {"new"}


def test_what_was_moved_aside_returns_unless_something_took_its_place(tmp_path):
    target = tmp_path / "fit"
    for taken in (False, True):
        target.mkdir(exist_ok=True)
        (target / "old").touch()
        with moved_aside(target):
            assert not target.exists()
            if taken:
                target.mkdir()
        assert names(tmp_path) == {"fit"}
        assert names(target) == (set() if taken else {"old"})


def test_the_end_of_a_process_removes_what_is_unfinished_and_no_earlier_result(tmp_path):
    target = tmp_path / "fit"
    target.mkdir()
    (target / "old").touch()
    with unfinished(target) as folder, unfinished(tmp_path / "run.npz") as file:
        folder.mkdir()
        (folder / "half").touch()
        file.touch()
        with moved_aside(target):
            remove_unfinished()
            assert names(tmp_path) == {"fit"}
            assert names(target) == {"old"}


def test_what_workers_leave_is_removed_after_an_error_and_at_the_end_of_the_process(tmp_path):
    left = tmp_path / "figure" / f".self.npz.0123{ENDING}"
    left.parent.mkdir()

    def interrupted():
        with written_by_workers(tmp_path):
            left.touch()
            remove_unfinished()
            assert names(left.parent) == set()
            left.touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(left.parent) == set()
    left.touch()
    remove_unfinished()
    assert names(left.parent) == {left.name}


def test_a_replaced_link_keeps_pointing_to_the_new_content(tmp_path):
    (tmp_path / "file").write_text("old")
    os.symlink("file", tmp_path / "link")
    with atomic_write(tmp_path / "link") as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
