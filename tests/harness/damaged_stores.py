"""Damaged stores of sweeps: each damage is noticed in one line that names the file, or changes nothing.

A case damages 25 copies of a store, one file or two in each. ``attsvm.open_sweep``, ``attsvm sweep show`` and the
sweep's own call read it. The store has finished chunks, failed ones and one that was not computed.
``python -m harness.damaged_stores CASE`` prints what a case finds.
"""

import contextlib
import io
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import attsvm
from attsvm.errors import ProblemError
from attsvm.sweeps import Definition, Measure, Output
from harness.campaign import Campaign, Outcome
from harness.mutations import pick

DAMAGES = 25


class Entries(Measure):
    """Outputs of numbers, which have an axis, and of codes. It fails in one cell."""

    name = "entries"
    outputs: ClassVar[Any] = {
        "largest": Output("largest entry", axes={"half": ["first", "second"]}),
        "sign": Output("sign of the mean", codes=("negative", "positive")),
    }

    def measure(self, block: Any) -> dict[str, np.ndarray]:
        """Measure the tokens."""
        tokens = block.problem.tokens
        if block.problem.dim == 3 and block.problem.num_tokens == 4:
            raise ProblemError("not in this cell")
        halves = [part.max(axis=(1, 2, 3)) for part in (tokens[:, :2], tokens[:, 2:])]
        return {"largest": np.stack(halves, axis=1), "sign": tokens.mean(axis=(1, 2, 3)) > 0}


class Undeclared(Measure):
    """An output whose array is created with its first chunk."""

    name = "undeclared"

    def measure(self, block: Any) -> dict[str, np.ndarray]:
        """Measure the labels."""
        return {"first_label": block.problem.labels[:, 0] > 0}


SWEEP = Definition({"dim": [2, 3], "num_tokens": [4, 3]}, [Entries(), Undeclared()], trials=20, block=8)


class DamagedStores(Campaign):
    """Damage to the files of a sweep's store."""

    name: ClassVar[str] = "damaged_stores"
    unit: ClassVar[str] = "damaged stores"
    full: ClassVar[int] = 2_000
    small: ClassVar[tuple[int, ...]] = (0,)
    limit_s: ClassVar[float] = 600.0

    def check(self, case: int) -> Outcome:
        """Damage 25 stores, and read each in three ways."""
        failures, counts = [], Counter[str]()
        for number in range(DAMAGES):
            with _copy() as store:
                what, files = _damage(store, np.random.default_rng((case, number)))
                for name, read in READERS.items():
                    found = _judged(name, read, store, files)
                    counts[found if found in ("noticed", "nothing changed") else "failed"] += 1
                    if found not in ("noticed", "nothing changed"):
                        failures.append(f"damage {number} of case {case}: {what}: {name}: {found}")
        return Outcome(DAMAGES, tuple(failures), counts)

    def missing(self) -> str | None:
        """Zarr and xarray are optional."""
        try:
            import xarray  # noqa: F401
            import zarr  # noqa: F401
        except ModuleNotFoundError as error:
            return str(error)
        return None


def _resume(store: Path, **options: Any) -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):  # failed chunks are warned of
        warnings.simplefilter("ignore")
        return attsvm.sweep(SWEEP, store=store, workers=0, chunk=8, **options).load()


def _show(store: Path) -> str:
    """What the command prints; its error as the exception that it is."""
    from attsvm.cli.main import main

    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["attsvm", "sweep", "show", str(store), "--json"]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = before
    if err.getvalue():
        raise ProblemError(err.getvalue().removeprefix("attsvm: ").removesuffix("\n"))
    return out.getvalue()


READERS: dict[str, Callable[[Path], Any]] = {
    "open_sweep": lambda store: attsvm.open_sweep(store).load(),
    "show": _show,
    "resume": _resume,
}


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """A copy of the store, always at the same path: the result of ``show`` names it."""
    store, _ = _undamaged()
    copy = store.with_name("copy")
    shutil.copytree(store, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


@cache
def _undamaged() -> tuple[Path, dict[str, Any]]:
    """A store, and what each reader finds."""
    folder = tempfile.TemporaryDirectory(prefix="attsvm-stores-")
    _kept.append(folder)
    store, copy = Path(folder.name) / "store", Path(folder.name) / "copy"
    _resume(store, callback=lambda progress: progress.step >= 56)  # without the last of twelve chunks
    shutil.copytree(store, copy)
    found = {name: read(copy) for name, read in READERS.items()}
    shutil.rmtree(copy)
    return store, found


_kept: list[tempfile.TemporaryDirectory[str]] = []


def _damage(store: Path, rng: np.random.Generator) -> tuple[str, list[str]]:
    """Damage a file or two; say how, and which."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and path.stat().st_size]
    file, other = (files[int(i)] for i in rng.choice(len(files), 2, replace=False))
    content = bytearray(file.read_bytes())
    kind = str(pick(("flip", "remove", "truncate", "swap", "copy", "rename", "stray"), rng))
    if kind == "flip":
        place = int(rng.integers(8 * len(content)))
        content[place // 8] ^= 1 << place % 8
        file.write_bytes(content)
    elif kind == "remove":
        file.unlink()
    elif kind == "truncate":
        file.write_bytes(content[: int(rng.integers(len(content)))])
    elif kind == "swap":
        file.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif kind == "copy":
        other.write_bytes(content)
    elif kind == "rename":
        # a free name, that of another file, or that of a chunk, which may be the one that was not computed
        other = pick((file.with_name(f"{file.name}.bak"), other, file.with_name("2")), rng)
        file.rename(other)
    else:
        file.with_name(str(pick((".DS_Store", "Thumbs.db", "notes.txt"), rng))).write_bytes(content)
    names = [str(path.relative_to(store)) for path in (file, other)]
    return f"{kind} {' '.join(names)}", names


def _judged(name: str, read: Callable[[Path], Any], store: Path, files: list[str]) -> str:
    expected = _undamaged()[1][name]
    try:
        found = read(store)
    except ProblemError as error:
        message = str(error)
        one_line = "\n" not in message and any(file in message for file in files)
        return "noticed" if one_line else f"expected one line that names the file, got {message[:300]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]!r}"
    same = found == expected if isinstance(found, str) else found.identical(expected)
    return "nothing changed" if same else "another answer, and nothing said"


CAMPAIGN = DamagedStores()

if __name__ == "__main__":
    outcome = CAMPAIGN.check(int(sys.argv[1]))
    print(*outcome.failures, dict(outcome.counts), sep="\n")
