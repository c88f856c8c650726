"""Standard output and error of the whole process, switched off for a block."""

import contextlib
import os
from collections.abc import Iterator

_silenced: list[int] = []  # the standard errors that blocks have switched off


def standard_error() -> int:
    """The file descriptor of the standard error, also where a block has switched it off."""
    return _silenced[0] if _silenced else 2


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Discard what the block prints on the standard output and error, also where native code of a library prints it."""
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _silenced.append(kept[1])
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for number, earlier in zip((1, 2), kept, strict=True):
            os.dup2(earlier, number)
        _silenced.remove(kept[1])
        for each in (*kept, nowhere):
            os.close(each)
