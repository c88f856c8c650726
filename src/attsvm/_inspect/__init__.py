"""What the commands ``inspect`` and ``compare`` do with saved models: their twins, their checkpoints, other texts."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

Shown = Callable[[str, Callable[[Any], object]], AbstractContextManager[Callable[[Any], object]]]
"""Shows the progress of a block: from what is inspected, and a callback, to what shows it and calls the callback."""
