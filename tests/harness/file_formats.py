"""The file formats that attsvm reads: a valid file of each, the function that reads it, and the commands."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from attsvm.errors import ProblemError
from harness.mutations import (
    Mutation,
    mutate_archive,
    mutate_bytes,
    mutate_json,
    mutate_lines,
    mutate_parquet,
    mutate_pickle,
    mutate_table,
    mutate_weights,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "the", "good", "bad", "film", "story", "was", "x"]
TEXTS = [f"the {'story' if i % 3 else 'film'} was {'good' if i % 2 else 'bad'} x{i % 4}" for i in range(24)]
LABELS = [i % 2 for i in range(24)]


@dataclass(frozen=True)
class Format:
    """A file format."""

    name: str
    file: str  # the valid file, in the folder of samples
    mutations: tuple[Mutation, ...]
    # what a command does with the file, as far as that depends on its content. It takes the folder of samples.
    read: Callable[[Path], object]
    commands: tuple[str, ...] = ()  # those that read the file; OUT is an empty folder


def write_samples(folder: Path) -> None:
    """Write a valid file of every format."""
    _write_arrays(folder)
    _write_texts(folder)
    _write_models(folder)
    _trained(folder)


def _write_arrays(folder: Path) -> None:
    import attsvm
    from attsvm.papers.pieces import PieceStore

    problem = attsvm.datasets.random_problem(6, 3, 2, seed=0)
    problem.save(folder / "problem.npz")
    selected = attsvm.optimal_tokens(problem)
    np.save(folder / "kept.npy", selected)
    np.savez(folder / "kept.npz", selected=selected)
    np.save(folder / "relaxed.npy", np.zeros(6, bool))
    solution, run = attsvm.solve_svm(problem, selected), attsvm.train(problem, steps=2)
    solution.save(folder / "solution.npz")
    run.save(folder / "run.npz")
    attsvm.classify(problem, run).save(folder / "classification.npz")
    attsvm.regularization_path(problem, [1.0, 2.0]).save(folder / "path.npz")
    PieceStore(folder)("piece", _piece)


def _write_texts(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(zip(TEXTS, LABELS, strict=True))
    for ending, separator in (("csv", ","), ("tsv", "\t")):
        lines = [f"text{separator}label", *(f'"{text}"{separator}{label}' for text, label in rows)]
        (folder / f"texts.{ending}").write_text("\n".join(lines) + "\n")
    (folder / "texts.jsonl").write_text("\n".join(json.dumps({"text": text, "label": label}) for text, label in rows))
    (folder / "lines.txt").write_text("\n".join(TEXTS[:3]))
    table = pa.table({"text": TEXTS, "label": LABELS})
    pq.write_table(table, folder / "texts.parquet")
    (folder / "reviews").mkdir()
    for split in ("train", "test"):
        pq.write_table(table, folder / "reviews" / f"{split}.parquet")
    for label in ("pos", "neg"):
        (folder / "labelled" / label).mkdir(parents=True)
        (folder / "labelled" / label / "text.txt").write_text(f"a {label} film")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def _write_models(folder: Path) -> None:
    import torch
    import transformers
    from PIL import Image

    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **sizes))
    tokenizer = transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), model_max_length=32)
    for name in ("bert", "pickled"):
        bert.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "pickled" / "model.safetensors").unlink()
    torch.save(bert.state_dict(), folder / "pickled" / "pytorch_model.bin")
    (folder / "tokenizer.json").write_bytes((folder / "bert" / "tokenizer.json").read_bytes())
    vit = transformers.ViTModel(transformers.ViTConfig(image_size=8, patch_size=4, **sizes))
    vit.save_pretrained(folder / "vit")
    transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder / "vit")
    (folder / "images").mkdir()
    pixels = np.random.default_rng(0).integers(256, size=(8, 8, 3), dtype=np.uint8)
    for ending in ("png", "jpg", "bmp", "webp"):
        Image.fromarray(pixels).save(folder / "images" / f"one.{ending}")
    transformers.utils.logging.enable_progress_bar()


def _trained(folder: Path, *, resume: bool = False) -> dict[str, Any]:
    """Train for an epoch, with a checkpoint in the folder ``run``."""
    from attsvm.papers import Experiment, make_options

    (folder / "run").mkdir(exist_ok=True)
    reviews = Experiment.load("imdb", "tiny", str(folder / "reviews"), vocabulary=str(folder / "vocab.txt"))
    return reviews.run(make_options(reviews.preset, "adam", epochs=1), folder / "run", resume=resume)


def _piece() -> dict[str, np.ndarray]:
    return {"values": np.arange(4.0), "errors": np.ones((2, 2))}


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file in the errors of what is done with its content: they name the argument."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"{name}: {error}") from None


def _read_problem(folder: Path) -> None:
    from attsvm.datasets import find_source

    find_source(str(folder / "problem.npz"), {}).load()


def _solves(name: str, argument: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        from attsvm import Problem, optimal_tokens, solve_svm
        from attsvm._utils.archives import read_array

        problem = Problem.load(folder / "problem.npz")
        given = {"selected": optimal_tokens(problem), argument: read_array(folder / name, argument)}
        with _naming(name):
            solve_svm(problem, **given)

    return read


def _loads(kind: str, name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        import attsvm
        from attsvm.theory import Classification

        loaded: Any = Classification if kind == "Classification" else getattr(attsvm, kind)
        repr(loaded.load(folder / name))

    return read


def _read_run(folder: Path) -> None:
    from attsvm import Run
    from attsvm.optimizers import optimizer_of
    from attsvm.training.setup import _last_parameters

    run = Run.load(folder / "run.npz")
    repr(run)
    with _naming("run.npz"):
        optimizer_of(run)
        _last_parameters(run, ["W"], ())


def _read_piece(folder: Path) -> None:
    """A damaged piece is measured again; what it held never comes back changed."""
    from attsvm.papers.pieces import PieceStore

    with TemporaryDirectory() as copy:  # where it is written again
        shutil.copy(folder / "piece.npz", copy)
        np.testing.assert_equal(PieceStore(Path(copy))("piece", _piece), _piece())


def _texts(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from attsvm._fit import read_texts

        return read_texts(folder / name).classes

    return read


def _reviews(vocabulary: str) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        from attsvm.papers import find_task

        task = find_task("imdb")
        return task.load(task.preset("tiny"), str(folder / "reviews"), vocabulary=str(folder / vocabulary))

    return read


def _read_checkpoint(folder: Path) -> None:
    assert _trained(folder, resume=True)["steps"] == 3


def _model(name: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        import os

        from attsvm.inspect import inspect
        from attsvm.pretrained import load_model, read_input
        from attsvm.texts.states import load_states

        path = os.path.relpath(folder / name)
        model: Any = load_model(f"./{path}")
        given = read_input(f"./{path}", model, TEXTS[:2], None)
        with _naming(name):
            inspect(model, given.batch, margins=False)
            load_states(folder / name).encode(TEXTS[:2])

    return read


def _read_pictures(folder: Path) -> None:
    from attsvm.inspect import inspect
    from attsvm.pretrained import load_model, read_input

    model: Any = load_model(str(folder / "vit"))
    given = read_input(str(folder / "vit"), model, [], folder / "images")
    with _naming("vit"):
        inspect(model, given.batch, margins=False)


def _read_lines(folder: Path) -> object:
    from attsvm.pretrained import read_texts

    return read_texts(folder / "lines.txt")


_ARCHIVE = (mutate_archive, mutate_archive, mutate_bytes)
_SOLVE = "solve problem.npz --json --selected"
_INSPECT = "--text lines.txt --no-twin --no-margins --json --out OUT/r"
_OF_BERT = (f"inspect ./bert {_INSPECT}", "fit-text texts.csv --embed bert --steps 2 --json --out OUT/r")
_EXPERIMENT = "experiment imdb --preset tiny --optimizer adam --epochs 1 --device cpu --json --out OUT/r --data reviews"

FORMATS = (
    Format("problem", "problem.npz", _ARCHIVE, _read_problem, (
        f"{_SOLVE} optimal --out OUT/s.npz",
        "train problem.npz --steps 2 --json --out OUT/r.npz",
        "fit problem.npz --steps 2 --json --out OUT/r",
    )),
    Format("selection in .npy", "kept.npy", (mutate_bytes,), _solves("kept.npy", "selected"), (f"{_SOLVE} kept.npy",)),
    Format("selection", "kept.npz", _ARCHIVE, _solves("kept.npz", "selected"), (f"{_SOLVE} kept.npz",)),
    Format("relaxed queries", "relaxed.npy", (mutate_bytes,), _solves("relaxed.npy", "relaxed"), (
        f"{_SOLVE} kept.npy --relaxed relaxed.npy",
    )),
    Format("run", "run.npz", _ARCHIVE, _read_run, ("train problem.npz --init run.npz --steps 2 --json",)),
    Format("solution", "solution.npz", _ARCHIVE, _loads("Solution", "solution.npz")),
    Format("path", "path.npz", _ARCHIVE, _loads("RegularizationPath", "path.npz")),
    Format("classification", "classification.npz", _ARCHIVE, _loads("Classification", "classification.npz")),
    Format("piece", "piece.npz", _ARCHIVE, _read_piece),
    Format("csv", "texts.csv", (mutate_table, mutate_bytes), _texts("texts.csv"), (
        "fit-text texts.csv --steps 2 --json --out OUT/r",
    )),
    Format("tsv", "texts.tsv", (mutate_table, mutate_bytes), _texts("texts.tsv"), (
        "fit-text texts.tsv --steps 2 --json",
    )),
    Format("jsonl", "texts.jsonl", (mutate_lines, mutate_bytes), _texts("texts.jsonl"), (
        "fit-text texts.jsonl --steps 2 --json",
    )),
    Format("parquet", "texts.parquet", (mutate_parquet, mutate_bytes), _texts("texts.parquet"), (
        "fit-text texts.parquet --steps 2 --json",
    )),
    Format("folder of texts", "labelled/pos/text.txt", (mutate_bytes,), _texts("labelled")),
    Format("reviews", "reviews/train.parquet", (mutate_parquet, mutate_bytes), _reviews("vocab.txt"), (
        f"{_EXPERIMENT} --vocabulary vocab.txt",
    )),
    Format("vocabulary", "vocab.txt", (mutate_bytes,), _reviews("vocab.txt")),
    Format("tokenizer", "tokenizer.json", (mutate_json,), _reviews("tokenizer.json"), (
        f"{_EXPERIMENT} --vocabulary tokenizer.json",
    )),
    Format("checkpoint", "run/checkpoint/model.safetensors", (mutate_weights, mutate_bytes), _read_checkpoint),
    Format("optimizer's state", "run/checkpoint/optimizer.pt", (mutate_pickle, mutate_bytes), _read_checkpoint),
    Format("lines of text", "lines.txt", (mutate_bytes, mutate_table), _read_lines),
    Format("model's config", "bert/config.json", (mutate_json,), _model("bert"), _OF_BERT),
    Format("model's weights", "bert/model.safetensors", (mutate_weights, mutate_bytes), _model("bert"), _OF_BERT),
    Format("model's tokenizer", "bert/tokenizer.json", (mutate_json,), _model("bert"), _OF_BERT),
    Format("tokenizer's config", "bert/tokenizer_config.json", (mutate_json,), _model("bert"), _OF_BERT),
    Format("pickled weights", "pickled/pytorch_model.bin", (mutate_pickle,), _model("pickled"), (
        f"inspect ./pickled {_INSPECT}",
    )),
    Format("model of pictures", "vit/config.json", (mutate_json,), _read_pictures),
    Format("image processor", "vit/preprocessor_config.json", (mutate_json,), _read_pictures),
    *(
        Format(f"picture in {ending}", f"images/one.{ending}", (mutate_bytes,), _read_pictures)
        for ending in ("png", "jpg", "bmp", "webp")
    ),
)  # fmt: skip
"""Every format, in the order in which a case damages them."""
