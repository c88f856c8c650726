"""The entry point of the command line ``attsvm``. Nothing slow is imported before signals are handled."""

import codecs
import io
import json
import os
import sys
from typing import Any

from attsvm._utils import interruption


def main() -> None:
    """Run the command line. An error gives one line on stderr; docs/guide/results.md lists the exit statuses."""
    _open_streams()
    with interruption.command():
        from attsvm.cli.app import run

        run()


def _open_streams() -> None:
    """Let stdout and stderr write any text: to nowhere if they are closed, and with escapes in another encoding."""
    codecs.register_error("escaped", _escaped)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):  # a test or a notebook may have put another one in its place
            stream.reconfigure(errors="escaped")


def _escaped(error: Any) -> tuple[str, int]:
    """The characters that an encoding lacks as JSON writes them, so that a result remains valid JSON."""
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
