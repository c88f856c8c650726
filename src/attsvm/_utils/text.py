"""Text of users: what a terminal and a page show of it, and the parts of file names and ids that are made from it."""

import json
import re
from collections.abc import Iterable
from typing import Any

LONGEST = 48
"""Most characters of a part of a file name. With an ending it has fewer than the 255 bytes of a file system."""

LONGEST_LABEL = 60
"""Most characters of a name in a figure."""

_WRAPPERS = {"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "base_layer"}

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"  # a terminal obeys some of them; lines and tabs are left
    r"|[\u2028\u2029]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # ends of lines and paragraphs; directions
    r"|[\ud800-\udfff\ufffe\uffff]"  # halves of surrogate pairs, such as bytes of a file name that are not UTF-8
)


def visible(text: str) -> str:
    r"""The text with an escape in place of each control character, and of what changes the direction of other letters.

    Examples
    --------
    >>> from attsvm._utils.text import visible
    >>> print(visible("\x1b[31mred, [/INST] and שלום"))
    \x1b[31mred, [/INST] and שלום
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def as_json(value: Any) -> str:
    """A value on one line of JSON, whose control characters are escapes: the value is the same."""
    return _CONTROLS.sub(
        lambda found: json.dumps(found[0])[1:-1], json.dumps(value, ensure_ascii=False, allow_nan=False)
    )


def as_label(name: object) -> str:
    r"""A name as Matplotlib draws it: no formula, left out of no legend, and short enough for a figure.

    Examples
    --------
    >>> from attsvm._utils.text import as_label
    >>> print(as_label("costs $5 or $6"), as_label("a" * 300), sep="\n")
    costs \$5 or \$6
    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa … aaaaaaaaaa
    """
    text = one_line(str(name))
    text = text if len(text) <= LONGEST_LABEL else f"{text[:40]} … {text[-10:]}"
    return " " * text.startswith("_") + text.replace("$", r"\$")


def one_line(text: str) -> str:
    """The text as :func:`visible` has it, on one line."""
    return " ".join(visible(text).split())


def slugs(names: Iterable[str]) -> list[str]:
    """For each name a part of a file name and of an id: letters, digits, ``_``, ``.`` and ``-``.

    Names that would be equal, or differ in capitals only, are numbered in their order. A slug is its own slug.

    Examples
    --------
    >>> from attsvm._utils.text import slugs
    >>> slugs(["entropy", "../../victim", '"><svg onload=x>', "..", "Entropy"])
    ['entropy', 'victim', 'svg-onload-x', 'unnamed', 'Entropy-2']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        first = re.sub(r"[^\w.]+", "-", name).strip("-.")[:LONGEST].rstrip("-.") or "unnamed"
        one, number = first, 2
        while one.casefold() in taken:  # some file systems do not tell capitals apart
            end, number = f"-{number}", number + 1
            one = first[: LONGEST - len(end)].rstrip("-.") + end
        taken.add(one.casefold())
        found.append(one)
    return found


def without_wrappers(path: list[str]) -> list[str]:
    """A path of modules without the names that compiling, DDP, FSDP, checkpointing and adapters put into it."""
    return [name for name in path if name not in _WRAPPERS]


def head_label(names: list[str], layer: int, head: int) -> str:
    """layer.head, with the name of the layer where a model has several kinds."""
    return f"{layer}.{head} {names[layer]}" if len(layer_kinds(names)) > 1 else f"{layer}.{head}"


def layer_kinds(names: list[str]) -> dict[str, list[int]]:
    """The numbers of the layers of each kind: those whose names differ in numbers alone, which are ``*``."""
    kinds: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        kinds.setdefault(re.sub(r"\d+", "*", name), []).append(k)
    return kinds
