"""The options that ``attsvm inspect`` and ``attsvm compare`` share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm.cli import completion
from attsvm.errors import ProblemError
from attsvm.pretrained import check_models

TextFile = Annotated[Path | None, typer.Option("--text", metavar="FILE", help="Text with one sequence per line.")]
SpecialTokens = Annotated[
    bool,
    typer.Option(
        "--special-tokens/--no-special-tokens",
        help="Add the special tokens of the tokenizer, such as [CLS], to the text.",
    ),
]
Chat = Annotated[
    bool, typer.Option("--chat", help="Put each line into the tokenizer's chat template, as a message of the user.")
]
Pairs = Annotated[bool, typer.Option("--pairs", help="Each line has two sentences, separated by a tab.")]
Images = Annotated[
    Path | None,
    typer.Option(
        "--images",
        metavar="DIR",
        help="Pictures, for ViT; with --text, for a model of both: the same number per line, in the order of their"
        " names.",
    ),
]
Sounds = Annotated[Path | None, typer.Option("--sounds", metavar="DIR", help="Sounds as .wav files, for Whisper.")]
Target = Annotated[
    Path | None,
    typer.Option(
        "--target",
        metavar="FILE",
        help="Text for the decoder, one line per sequence.  [default: the same text; with --sounds, the tokens that"
        " begin a generation]",
    ),
]
Family = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="NAME",
        autocompletion=completion.FAMILIES,
        help="Family of the models, or package.module:name.  [default: found from the models]",
    ),
]
Margins = Annotated[bool, typer.Option(help="Solve for the best margins, which takes most of the time.")]
Queries = Annotated[
    int | None,
    typer.Option(
        "--queries",
        metavar="N",
        help="Number of queries to inspect per layer.  [default: all, or a sample if the sequences are long]",
    ),
]
Gap = Annotated[float, typer.Option("--gap", help="Relative width of the intervals of the margins.")]


def head_place(option: str, head: str) -> tuple[int, int]:
    """Read a head such as 3.5: its layer, and its number there.

    Raises ProblemError if it is written in another way.
    """
    try:
        layer, of_layer = (int(part) for part in head.split("."))
    except ValueError:
        raise ProblemError(f"{option}: expected a layer and a head, such as 3.5, got {head!r}") from None
    return layer, of_layer


def text_options(
    text: Path | None, images: Path | None, *, special_tokens: bool, chat: bool, pairs: bool
) -> dict[str, bool]:
    """How texts are read: those of the options that are not their default.

    Raises ProblemError if there is such an option without text, or two exclude each other.
    """
    given = {"special_tokens": special_tokens, "chat": chat, "pairs": pairs}
    chosen = {name: value for name, value in given.items() if value != (name == "special_tokens")}
    names = {"special_tokens": "--no-special-tokens", "chat": "--chat", "pairs": "--pairs"}
    if chosen and text is None:
        raise ProblemError(f"{names[next(iter(chosen))]}: expected --text with it")
    if pairs and images is not None:
        raise ProblemError("--pairs, --images: cannot be used together")
    if chat and len(chosen) > 1:
        other = next(names[name] for name in chosen if name != "chat")
        raise ProblemError(f"--chat, {other}: cannot be used together")
    return chosen


def inspect_arguments(
    models: Sequence[str],
    text: Path | None,
    images: Path | None,
    *,
    head: list[str] | None,
    sentence: int | None,
    queries: int | None,
    gap: float,
    margins: bool,
    seed: int,
    family: str | None,
    device: str | None,
    sounds: Path | None = None,
) -> dict[str, Any]:
    """Check the options, and return the arguments of :func:`attsvm.inspect.inspect`.

    Raises ProblemError if one of them is not valid, or a package is not installed that the models need.
    """
    if text is None and images is None and sounds is None:
        raise ProblemError("--text, --images: expected at least one of them")
    heads = [head_place("--head", one) for one in head] if head else None
    check_number("--gap", gap, "a number between 0 and 1", lambda x: 0 < x < 1)
    for name, number, least in (("--sentence", sentence, 0), ("--queries", queries, 1)):
        if number is not None:
            check_integer(name, number, least)
    check_seed(seed, "--seed")
    check_models(models, pictures=images is not None)

    from attsvm._utils.devices import find_torch_device

    return {
        "heads": heads,
        "queries": queries,
        "gap": gap,
        "margins": margins,
        "seed": seed,
        "family": family,
        "device": str(find_torch_device(device)),
    }
