"""How extensions are found by name: what is built in, installed packages, and import paths."""

import contextlib
import difflib
import importlib
import inspect
import json
import os
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, reduce
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

from attsvm.errors import ProblemError

T = TypeVar("T")

_of_file: ContextVar[bool] = ContextVar("_of_file", default=False)  # whether a file names what is looked up now
_given: set[str] = set()  # import paths that the user or a trusted file named

FOLDERS: list[str] = []
"""The current folders in which modules were found by their import paths, for worker processes."""


class Registry(Generic[T]):
    """The extensions of one kind, by name.

    An extension comes from one of three places: a module of ``package``, which registers it when it is imported; an
    entry point of ``group`` in an installed distribution; or an import path ``package.module:name``.

    ``kind``: what the extensions are, for error messages: "norm", "optimizer", ... ``group``: name of the entry-point
    group, "attsvm.norms" for instance. ``package``: its modules register the built-in extensions, and are imported on
    first use. ``check``: applied to what an entry point or an import path refers to. It returns the extension, or
    raises :class:`attsvm.ProblemError`.
    """

    def __init__(self, kind: str, *, group: str, package: str, check: Callable[[object], T] | None = None) -> None:
        self.kind, self.group, self.package = kind, group, package
        self._check = check
        self._registered: dict[str, T] = {}
        self._later: dict[str, str] = {}
        self._discovered = False
        self._warned: set[str] = set()
        self._discovering = threading.RLock()

    def register(self, name: str, extension: T) -> T:
        """Add an extension under a name, and return it; raises ProblemError if another one has the name."""
        if self._registered.setdefault(name, extension) is not extension:
            raise ProblemError(f"{self.kind}: the name {name!r} is taken")
        return extension

    def register_later(self, name: str, path: str) -> None:
        """Add a built-in extension by its import path, ``package.module:name``, which is imported when it is named."""
        self._later[name] = path

    @property
    def later(self) -> list[str]:
        """Names of the built-in extensions that are imported when they are named."""
        self._discover()
        return list(self._later)

    def names(self) -> list[str]:
        """Names of the built-in and the installed extensions; the built-in ones come first."""
        self._discover()
        built_in = {**self._registered, **self._later}
        return [*built_in, *(name for name in self._installed() if name not in built_in)]

    def __iter__(self) -> Iterator[T]:
        """The built-in and the installed extensions, without those of :meth:`items` that are left out."""
        return (extension for _, extension in self.items())

    def items(self, *, later: bool = True) -> Iterator[tuple[str, T]]:
        """Names and extensions; each is imported when its turn comes. Without ``later``, those in it are left out.

        An installed extension that cannot be imported or is of another kind is left out, with one warning. One broken
        package then does not disturb the use of the others; :meth:`find` raises its error.
        """
        for name in self.names():
            if not later and name in self._later:
                continue
            try:
                extension = self.find(name)
            except ProblemError as error:
                if name not in self._warned:
                    self._warned.add(name)
                    warnings.warn(f"{error}; it is left out", RuntimeWarning, stacklevel=2)
                continue
            yield name, extension

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def find(self, name: str) -> T:
        """The extension of a name of :meth:`names`, or of an import path ``package.module:name``.

        Modules in the current folder are found, too. Raises ProblemError if there is no such extension, or it cannot
        be imported or is of another kind.
        """
        self._discover()
        if name in self._registered:
            return self._registered[name]
        if name in self._later:
            return _import(self.kind, self._later[name], self.names(), self._check)
        points = self._installed().get(name, ())
        if len(points) > 1:
            owners = ", ".join(sorted(point.dist.name if point.dist else point.value for point in points))
            raise ProblemError(f"{self.kind}: the name {name!r} is given by several installed packages: {owners}")
        if points:
            return _load(self.kind, name, points[0].load, self._check)
        return _import(self.kind, name, self.names(), self._check)

    def _discover(self) -> None:
        if self._discovered:
            return
        with self._discovering:  # another thread waits until all are registered
            package = importlib.import_module(self.package)
            modules = [f"{self.package}.{one.name}" for one in pkgutil.iter_modules(getattr(package, "__path__", ()))]
            for module in modules:
                importlib.import_module(module)
            # a module that was imported before has registered first; the order of extensions must not depend on it
            places = {module: place for place, module in enumerate(modules)}
            of = [places.get(getattr(x, "__module__", ""), len(modules)) for x in self._registered.values()]
            in_order = sorted(zip(of, self._registered.items(), strict=True), key=lambda pair: pair[0])
            self._registered = dict(item for _, item in in_order)
            self._discovered = True

    def _installed(self) -> dict[str, tuple[EntryPoint, ...]]:
        return _entry_points(self.group, tuple(sys.path))


def find_named(kind: str, known: Mapping[str, T], name: str, check: Callable[[object], T] | None = None) -> T:
    """Return what a name of ``known`` or an import path refers to; ``kind`` and ``check`` are those of a registry.

    Raises ProblemError if there is no such name, or it cannot be imported or is of another kind.
    """
    return known[name] if name in known else _import(kind, name, known, check)


def _import(kind: str, name: str, known: Iterable[str], check: Callable[[object], T] | None) -> T:
    if ":" in name:
        return _load(kind, name, lambda: import_object(name), check)
    raise unknown_name(kind, name, known)


def _load(kind: str, name: str, load: Callable[[], object], check: Callable[[object], T] | None) -> T:
    try:
        found = load()
    except Exception as error:  # an extension may fail on import in any way
        raise ProblemError(f"{kind}: {name!r} cannot be imported ({type(error).__name__}: {error})") from error
    if check is None:
        return found  # type: ignore[return-value]  # without a check every object is an extension
    try:
        return check(found)
    except ProblemError as error:
        raise ProblemError(f"{kind}: {name}: {error}") from None


def kind_check(base: type) -> Callable[[object], Any]:
    """The ``check`` of a registry whose extensions are instances or subclasses of a base class."""

    def check(found: object) -> Any:
        if isinstance(found, base) or (isinstance(found, type) and issubclass(found, base)):
            return found
        raise ProblemError(f"expected a {base.__name__} or a subclass of it, got {type(found).__name__}")

    return check


def unknown_name(
    kind: str, name: str, known: Iterable[str], other: str = "package.module:name", hint: str = ""
) -> ProblemError:
    """The error for a name that is not known: what may be meant comes before all names.

    ``other``: what is allowed besides names. ``hint``: what is said in place of the name that is spelled most alike.
    """
    meant = hint or did_you_mean(name, known) or "."
    return ProblemError(f"{kind}: expected a name or {other}, got {name!r}{meant} The names are {', '.join(known)}")


def did_you_mean(name: str, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return the end of an error message: the known name that is spelled most alike, "" if none is.

    ``others`` are known names by what else they are called.

    Examples
    --------
    >>> from attsvm._utils.extensions import did_you_mean
    >>> did_you_mean("logstic", ["logistic", "linear"]), did_you_mean("hinge", ["logistic", "linear"])
    ('; did you mean logistic?', '')
    """
    others = others or {}
    found = difflib.get_close_matches(name.lower(), [*known, *others], n=1)
    return f"; did you mean {others.get(found[0], found[0])}?" if found else ""


@contextlib.contextmanager
def named_by_file() -> Iterator[None]:
    """In the block, import paths come from a file: those that the user did not name reach what is imported already."""
    token = _of_file.set(True)
    try:
        yield
    finally:
        _of_file.reset(token)


def trust(content: Any) -> None:
    """Take the import paths in the JSON of a file as named by the user."""
    _given.update(re.findall(r'"([\w.]+:[\w.]+)"', json.dumps(content, ensure_ascii=False)))


def is_trusted(path: str) -> bool:
    """Return whether the user named this path, or a file that the user trusts."""
    return not _of_file.get() or path in _given


@contextlib.contextmanager
def importable(folders: Iterable[str]) -> Iterator[None]:
    """Import modules in these folders, too, after all others, within the block."""
    # with a separator at the end they differ from entries of others, in other threads and of the modules themselves
    added = [os.path.join(folder, "") for folder in folders]
    sys.path.extend(added)
    try:
        yield
    finally:
        for entry in added:
            with contextlib.suppress(ValueError):
                sys.path.remove(entry)


def import_object(path: str) -> Any:
    """What ``package.module:name`` refers to. Modules in the current folder are found after all others.

    A path that a file names (:func:`named_by_file`) runs no code: its module is imported already, or one of attsvm.

    Raises ImportError, AttributeError or ValueError if there is no such module or name, or what a module raises on
    import.
    """
    module, _, name = path.partition(":")
    if "/" in module or module.endswith(".py"):
        raise ValueError(f"expected a module in place of a file: {Path(module).stem}:{name}, in the folder of the file")
    if not is_trusted(path):
        if module not in sys.modules and (not module.startswith("attsvm.") or module.endswith("__main__")):
            raise ImportError(f"a file names it: import {module} first, or load the file with trusted=True")
        return reduce(inspect.getattr_static, name.split("."), importlib.import_module(module))
    here = str(Path.cwd())
    with importable(() if {"", here} & {*sys.path} else (here,)):
        found: Any = importlib.import_module(module)
    if (getattr(found, "__file__", None) or "").startswith(here) and here not in FOLDERS:
        FOLDERS.append(here)
    _given.add(path)
    return reduce(getattr, name.split("."), found)


@lru_cache(maxsize=64)
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by name. Reading those of all installed packages takes about 10 ms, so it is done once."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=group):
        found[point.name] = (*found.get(point.name, ()), point)
    return found
