"""The folder of a result: whole or not there, and never in the place of something else."""

import json
import os
import shutil
import socket
from pathlib import Path

import pandas
import pytest

import attsvm
from attsvm import ProblemError
from attsvm.cli import COMMANDS, load_command
from attsvm.pages.folder import claim_folder, write_files
from attsvm.papers import claim_experiment


def result(text, *figures):
    """What writes a result with this text and these figures into a folder."""
    found = json.dumps({"schema": "attsvm.inspect/2", "text": text}).encode()
    files = {"result.json": found, "index.html": b"", **{f"figures/{name}.png": b"" for name in figures}}
    return lambda folder: write_files(folder, files)


def write_once(out, text, **options):
    with claim_folder(out, **options) as write:
        write(result(text))


def text_of(folder):
    return json.loads((folder / "result.json").read_text())["text"]


@pytest.fixture
def out(tmp_path):
    """A folder with an earlier result, alone in its parent."""
    out = tmp_path / "deep" / "out"
    with claim_folder(out) as write:
        write(lambda folder: (result("first")(folder), (folder / "run.npz").touch()))
    return out


def test_force_replaces_a_result_as_a_whole(out):
    def second(folder):
        result("second")(folder)
        assert text_of(out) == "first", "the old one stays until the new one is whole"

    with claim_folder(out, force=True) as write:
        write(second)
    assert {path.name for path in out.iterdir()} == {"result.json", "index.html"}
    assert text_of(out) == "second"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_earlier_result(out, error):
    def half(folder):
        result("half")(folder)
        raise error

    with pytest.raises(error), claim_folder(out, force=True) as write:
        write(half)
    assert text_of(out) == "first"
    assert list(out.parent.iterdir()) == [out]


def test_a_folder_that_is_updated_is_whole_each_time(tmp_path):
    out = tmp_path / "deep" / "out"
    with claim_folder(out) as write:
        assert not out.exists()
        for text in ("first", "second", "third"):
            write(result(text, text))
            assert text_of(out) == text
            assert [path.name for path in (out / "figures").iterdir()] == [f"{text}.png"]
    assert text_of(out) == "third"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("updates", [0, 1, 2])
@pytest.mark.parametrize("earlier", [False, True])
def test_an_error_undoes_all_updates(tmp_path, updates, earlier):
    out = tmp_path / "deep" / "out"
    if earlier:
        write_once(out, "earlier")

    def fail():
        with claim_folder(out, force=True) as write:
            for number in range(updates):
                write(result(str(number)))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    if earlier:
        assert text_of(out) == "earlier"
        assert list(out.parent.iterdir()) == [out]
    else:
        assert list(tmp_path.iterdir()) == []


def test_an_update_replaces_nothing_that_others_wrote(tmp_path):
    out = tmp_path / "out"

    def update_twice():
        with claim_folder(out) as write:
            write(result("first"))
            (out / "notes.txt").write_text("theirs")
            write(result("second"))

    with pytest.raises(ProblemError, match=r"holds more than a result \(notes.txt\)"):
        update_twice()
    assert (out / "notes.txt").read_text() == "theirs"
    assert text_of(out) == "first"


def test_a_folder_that_appears_meanwhile_is_not_overwritten(tmp_path):
    out = tmp_path / "out"

    def come_late(folder):
        result("late")(folder)
        out.mkdir()
        (out / "theirs").touch()

    with pytest.raises(ProblemError, match="exists already"), claim_folder(out) as write:
        write(come_late)
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "theirs"]


@pytest.mark.parametrize("stranger", ["thesis.tex", "figures.bak"])
def test_force_refuses_a_folder_with_strangers(out, stranger):
    (out / stranger).touch()
    with pytest.raises(ProblemError, match=f"holds more than a result \\({stranger}\\)"), claim_folder(out, force=True):
        pass
    assert text_of(out) == "first"


def test_force_takes_an_empty_folder_and_refuses_a_file(tmp_path):
    (tmp_path / "empty").mkdir()
    write_once(tmp_path / "empty", "new", force=True)
    assert text_of(tmp_path / "empty") == "new"
    (tmp_path / "file").write_text("kept")
    with (
        pytest.raises(ProblemError, match="expected a folder or a free name, got a file"),
        claim_folder(tmp_path / "file", force=True),
    ):
        pass
    assert (tmp_path / "file").read_text() == "kept"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    problem = attsvm.datasets.random_problem(6, 4, 3, seed=0)
    problem.save(folder / "problem.npz")
    (folder / "texts.csv").write_text("text,label\n" + "good film,+\nbad film,-\n" * 5)
    (folder / "sentences.txt").write_text("a text\n")
    bags = pandas.DataFrame({"bag": [0, 0, 1, 2, 3, 3], "x": [0.0, 1.0, 2.0, 1.0, 3.0, 2.0]})
    bags.to_csv(folder / "bags.csv", index=False)
    fitted = attsvm.AttentionClassifier(max_steps=1, random_state=0).fit(bags, pandas.Series([0, 1, 0, 1]), bag="bag")
    fitted.save(folder / "model.npz")
    return folder


@pytest.fixture
def commands(inputs, tmp_path):
    """Every command that writes, with its input in the folder of the test, without ``--out`` and ``--force``."""
    folder = shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    source = str(folder / "problem.npz")
    return {
        "fit": ["fit", source, "--steps", "3"],
        "fit-text": ["fit-text", str(folder / "texts.csv"), "--steps", "3", "--min-documents", "1"],
        "next-token": ["next-token", str(folder / "sentences.txt")],
        "predict": ["predict", str(folder / "model.npz"), str(folder / "bags.csv")],
        "train": ["train", source, "--steps", "3"],
        "solve": ["solve", source, "--selected", "optimal"],
        "playground": ["playground"],
        "profile": ["profile", "adam", "--steps", "4", "--seeds", "1"],
        "inspect": ["inspect", str(folder / "model"), "--text", str(folder / "sentences.txt")],
        "compare": ["compare", str(folder / "model"), str(folder / "model"), "--text", str(folder / "sentences.txt")],
        "monitor": ["monitor", str(folder / "heads.csv")],
        "experiment": ["experiment", "imdb", "--preset", "tiny", "--data", str(folder / "data")],
        "reproduce": ["reproduce", "losses", "--quick"],
        "sweep": ["sweep", "phase-feasible", "--trials", "1", "--workers", "0"],
        "sweep show": ["sweep", "show", str(folder / "store")],
    }


WRITING = [name for name in COMMANDS if any("--out" in each.opts for each in load_command(name).params)]
CONTINUING = {"reproduce", "sweep"}
"""Commands without ``--force``: they continue what is at ``--out``."""


def things(folder, end=""):
    """What an output must not replace, by name, with an end. No device is among them: a test must not risk one."""
    os.mkfifo(folder / f"FIFO{end}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / f"socket{end}"))
    (folder / f"link to a FIFO{end}").symlink_to(folder / f"FIFO{end}")
    (folder / f"link to nothing{end}").symlink_to(folder / "nothing")
    (folder / "file").write_text("kept")
    (folder / f"folder{end}").mkdir()
    (folder / f"folder{end}" / "thesis.tex").write_text("kept")
    return [f"{name}{end}" for name in ("FIFO", "socket", "link to a FIFO", "link to nothing", "file/below", "folder")]


def state(folder):
    """What is in a folder: inode, kind and size of every entry."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {path: (entry.st_ino, entry.st_mode, entry.st_size) for path, entry in found.items()}


@pytest.mark.parametrize("name", WRITING)
def test_what_is_neither_a_file_nor_a_folder_of_ours_is_never_replaced(name, commands, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    arguments = commands[name]
    force = [] if name in CONTINUING else ["--force"]
    for thing in things(tmp_path, ".csv" if name == "predict" else ""):
        before = state(tmp_path)
        refused(f"{thing}: ", *arguments, "--out", thing, *force)
        assert state(tmp_path) == before


@pytest.mark.parametrize("name", ["train", "solve", "fit", "fit-text"])
def test_an_input_is_never_replaced(name, commands, refused):
    arguments = commands[name]
    contents = Path(arguments[1]).read_bytes()
    refused(f"{arguments[1]}: expected", *arguments, "--out", arguments[1], "--force")
    assert Path(arguments[1]).read_bytes() == contents


def test_a_result_is_written_through_a_link_and_keeps_it(tmp_path):
    problem = attsvm.datasets.random_problem(6, 4, 3, seed=0)
    problem.save(tmp_path / "file.npz")
    (tmp_path / "link.npz").symlink_to("file.npz")
    os.mkfifo(tmp_path / "FIFO")
    with pytest.raises(ProblemError, match="expected a file or a free name, got a FIFO"):
        problem.save(tmp_path / "FIFO")
    attsvm.Problem(problem.tokens[:3], labels=problem.labels[:3]).save(tmp_path / "link.npz")
    assert (tmp_path / "link.npz").is_symlink()
    assert len(attsvm.Problem.load(tmp_path / "file.npz").tokens) == 3


def test_the_run_of_an_interrupted_command_is_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run.npz").touch()
    write_once(tmp_path / "out", "second", force=True)
    assert text_of(tmp_path / "out") == "second"


def test_a_folder_that_only_looks_like_a_result_is_not_replaced(out, tmp_path):
    (out / "figures").mkdir()
    for change in (
        lambda: (out / "result.json").write_text('{"mine": 1}'),
        lambda: (out / "figures" / "letter.txt").write_text("mine"),
    ):
        change()
        with pytest.raises(ProblemError, match="holds more than a result"), claim_folder(out, force=True):
            pass
        (out / "result.json").write_text('{"schema": "attsvm.fit/1"}')
    # a folder of TensorBoard is often called runs, too
    (tmp_path / "mine" / "runs" / "events").mkdir(parents=True)
    (tmp_path / "mine" / "runs" / "events" / "of.tensorboard").touch()
    with pytest.raises(ProblemError, match="holds no experiment"):
        claim_experiment(tmp_path / "mine", resume=False, force=True)
