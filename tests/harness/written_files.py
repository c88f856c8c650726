"""Comparison of the files of two runs, bit for bit up to times and the command line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_VARY = {"seconds", "seconds_total", "command", "pieces_reused", "meta", "seconds_training"}
_VARY |= {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time"}
_LEFT_OUT = {"start.npz", "training_args.bin", "sha256"}  # the latter two hold a hidden name and times
_TIME = re.compile(
    r"\d[\d.,e+-]*(?= (s|min|seconds|minutes|steps a second)\b)|\battsvm [a-z-]+ [^<&]*"
    r"|seconds[^<]*</th>\s*<td[^>]*>[^<]*|, \d+ of \d+ pieces from an earlier run"
)


def differences(expected: Path, found: Path, pattern: str) -> Iterator[str]:
    """One line for each file that one folder lacks, or whose content differs.

    A run that was continued holds the steps that each part recorded, so its history is left out.
    """
    continued = (found / "start.npz").exists()
    names = [
        {
            str(path.relative_to(folder))
            for path in folder.glob(pattern)
            if path.is_file() and path.name not in _LEFT_OUT
        }
        for folder in (expected, found)
    ]
    if names[0] != names[1]:
        yield f"wrote {sorted(names[1] - names[0])}, not {sorted(names[0] - names[1])}"
    for name in sorted(names[0] & names[1]):
        contents = _content(expected / name), _content(found / name)
        if continued:
            contents = tuple({name: x for name, x in arrays.items() if "history/" not in name} for arrays in contents)
        if contents[0] != contents[1]:
            yield f"{name} differs{_where(*contents)}"


def _where(expected: Any, found: Any) -> str:
    """The arrays that differ, or the place of the first difference between two texts."""
    if isinstance(expected, dict):
        differ = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
        return f" in {', '.join(differ)}"
    if not isinstance(expected, str):
        return ""
    first = next((i for i, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other), 0)
    part = slice(max(0, first - 80), first + 40)
    return f": {found[part]!r}, not {expected[part]!r}"


def _content(path: Path) -> Any:
    """What must be equal, in a form that compares."""
    if path.suffix == ".npz":
        with np.load(path) as archive:
            names = [name for name in archive.files if name not in ("__meta__", "stats/seconds")]
            return {name: (archive[name].dtype, archive[name].shape, archive[name].tobytes()) for name in names}
    if path.suffix == ".json":
        return json.dumps(_without_times(json.loads(path.read_text())))
    if path.suffix == ".safetensors":
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        return header, content[8 + length :]
    if path.suffix == ".html":
        return _TIME.sub("", path.read_text())
    return path.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(entry) for name, entry in value.items() if name not in _VARY}
    if isinstance(value, list):
        return [_without_times(entry) for entry in value]
    return value
