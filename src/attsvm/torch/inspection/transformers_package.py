"""The ``transformers`` package, without its messages."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from attsvm.errors import ProblemError


@contextlib.contextmanager
def quiet_transformers() -> Iterator[Any]:
    """The package, with its messages, warnings and progress bars switched off.

    Raises
    ------
    ProblemError
        If it is not installed.
    """
    try:
        import transformers
        from transformers.utils import logging as messages
    except ImportError as error:
        raise ProblemError("attsvm inspect needs transformers: pip install 'attsvm[torch]'") from error
    settings: Any = messages  # untyped
    verbosity = settings.get_verbosity()
    settings.set_verbosity(logging.CRITICAL)
    settings.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        settings.set_verbosity(verbosity)
        settings.enable_progress_bar()


def first_line(error: Exception) -> str:
    """The first line of an error's message, without its last punctuation."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(" .:")
