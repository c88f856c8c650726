"""Doors of packages: the names that other code may import, each loaded on first use."""

from collections.abc import Callable, Sequence
from typing import Any

import lazy_loader


def open_door(
    package: str, file: str, door: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Its stub, ``__init__.pyi``, says which module has which name: ``from attsvm.package import name`` imports that
    module and no other. ``door``: the names of the stub that are for the other packages of attsvm, and not public.
    """
    load, _, listed = lazy_loader.attach_stub(package, file)
    public = sorted(set(listed) - set(door))
    return load, public.copy, public
