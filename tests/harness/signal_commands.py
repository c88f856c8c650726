"""The commands that are disturbed: their arguments, their inputs, and how each is run again."""

import csv
import fcntl
import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.samples import write_reviews

INPUTS = Path(__file__).parents[2] / "out" / "soak" / "signals" / "inputs"


def _the_same(command: "Command", work: Path) -> list[list[str]]:
    """The same command, unless it was complete."""
    return [] if (work / "out").exists() or (work / "out.npz").exists() else [command.arguments]


def _always(command: "Command", work: Path) -> list[list[str]]:
    return [command.arguments]


def _continued_run(command: "Command", work: Path) -> list[list[str]]:
    """The steps that are missing."""
    from attsvm.training import Run

    path, start = work / "out.npz", work / "start.npz"
    if path.exists():
        run = Run.load(path)
        if run.status != "interrupted" or int(run.step) >= TRAIN_STEPS:
            return []
        path.rename(start)
    if not start.exists():
        return [command.arguments]
    run = Run.load(start)
    missing = str(TRAIN_STEPS - int(run.step))
    return [["train", str(INPUTS / "problem.npz"), "--steps", missing, "--init", "start.npz", "--out", "out.npz"]]


def _forced(command: "Command", work: Path) -> list[list[str]]:
    """The same command with ``--force`` if an interrupted result was written."""
    if not (work / "out").exists():
        return [command.arguments]
    if not (work / "out" / "result.json").exists():
        shutil.rmtree(work / "out")  # there was time for the run only
        return [command.arguments]
    result = json.loads((work / "out" / "result.json").read_text())
    return [[*command.arguments, "--force"]] if result["interrupted"] else []


def _resumed(command: "Command", work: Path) -> list[list[str]]:
    return [[*command.arguments, "--resume"]] if (work / "out").exists() else [command.arguments]


def _make_problems(folder: Path) -> None:
    import attsvm

    attsvm.datasets.random_problem(6, 8, 10, 0).save(folder / "problem.npz")
    attsvm.datasets.random_problem(10, 12, 8, 0).save(folder / "large.npz")


def _make_texts(folder: Path) -> None:
    generator = np.random.default_rng(0)
    words = np.array([f"word{i}" for i in range(40)])
    with (folder / "texts.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["text", "label"])
        for row in range(120):
            rows.writerow([" ".join([*generator.choice(words, 12), ("bad", "good")[row % 2]]), row % 2])


def _make_model(folder: Path) -> None:
    import transformers

    generator = np.random.default_rng(0)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(60))]
    (folder / "words.txt").write_text("\n".join(vocabulary))
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), max_position_embeddings=64, hidden_size=16, num_attention_heads=2,
        num_hidden_layers=1, intermediate_size=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder / "bert")
    transformers.BertTokenizer(str(folder / "words.txt"), model_max_length=64).save_pretrained(folder / "bert")
    # with so many pairs of tokens the heads are solved in processes
    lines = [" ".join(f"w{word}" for word in generator.integers(0, 60, 40)) for _ in range(3)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n")


def _make_reviews(folder: Path) -> None:
    write_reviews(folder, train=48, test=20)


@dataclass(frozen=True)
class Command:
    """A command: what it needs, how it is run again, which files are compared, and its share of the cases."""

    name: str
    weight: int
    arguments: list[str]
    again: Callable[["Command", Path], list[list[str]]] = _the_same
    make: Callable[[Path], None] = _make_problems
    needs: tuple[str, ...] = ()
    compare: str = "**/*"

    def is_installed(self) -> bool:
        """Whether the packages are there that the command needs."""
        return all(importlib.util.find_spec(name) for name in self.needs)

    def make_inputs(self) -> None:
        """Make the input files once."""
        INPUTS.mkdir(parents=True, exist_ok=True)
        complete = INPUTS / f"{self.make.__name__}.complete"
        with (INPUTS / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not complete.exists():
                self.make(INPUTS)
                complete.touch()

    def next_runs(self, work: Path) -> list[list[str]]:
        """The commands that complete what is in a folder."""
        return self.again(self, work)


def _words(line: str) -> list[str]:
    return [word.replace("INPUTS", str(INPUTS)) for word in line.split()]


TRAIN_STEPS = 300_000
COMMANDS = [
    Command("solve", 13, _words("solve INPUTS/large.npz --selected optimal --norm nuclear --out out.npz")),
    Command("train", 12, _words(f"train INPUTS/problem.npz --steps {TRAIN_STEPS} --out out.npz"), _continued_run),
    Command("fit", 7, _words("fit INPUTS/problem.npz --steps 60000 --out out"), _forced),
    Command(
        "fit-text", 6, _words("fit-text INPUTS/texts.csv --steps 200 --min-documents 2 --out out"), make=_make_texts
    ),
    Command("reproduce", 7, _words("reproduce feasibility rank --quick --out out"), _always),
    Command(
        "inspect",
        2,
        _words("inspect INPUTS/bert --text INPUTS/text.txt --no-twin --gap 0.1 --out out"),
        _forced,
        make=_make_model,
        needs=("torch", "transformers"),
    ),
    Command(
        "experiment",
        3,
        _words(
            "experiment imdb --data INPUTS --vocabulary INPUTS/vocab.txt --preset tiny --optimizer mirror-1.1,adam"
            " --epochs 2 --device cpu --threads 1 --checkpoint-every 2 --out out"
        ),
        _resumed,
        make=_make_reviews,
        needs=("torch", "tokenizers", "pyarrow"),
    ),
]
