"""What is kept of a command if Ctrl-C comes where its computation cannot be stopped."""

import sys
from pathlib import Path

from attsvm._utils.temporaries import finish, is_finished, remove_unfinished
from attsvm.cli.interrupts import on_interruption


class Kept:
    """The latest result, which is written and printed if the command is interrupted before it has a better one.

    Parameters
    ----------
    folder : Path or None
        The hidden folder that becomes ``out``.
    out : Path or None
    """

    def __init__(self, folder: Path | None, out: Path | None) -> None:
        self.folder, self.out = folder, out

    def keep(self, holds: str, files: dict[str, bytes] | None = None, text: str = "") -> None:
        """Replace what is kept.

        Parameters
        ----------
        holds : str
            What it covers, for the line on stderr.
        files : dict of str to bytes, optional
            Files by their names; they are written in addition to those that the folder holds.
        text : str
            What is printed on stdout.
        """
        folder, out = self.folder, self.out
        nothing = "nothing was written" if out is None else f"nothing was written to {out}"

        def rescue() -> None:
            if folder is not None and out is not None:
                remove_unfinished(but=folder)
                if not is_finished(out):
                    for name, content in (files or {}).items():
                        (folder / name).write_bytes(content)
                    finish(folder, out.resolve())
            remove_unfinished()
            sys.stdout.write(text)

        def said() -> str:
            if out is None:
                return f"the result covers {holds}" if text else nothing
            return f"{out} holds {holds}" if is_finished(out) else nothing

        on_interruption(said, rescue)

    def done(self) -> None:
        """Declare that the result itself is in ``out``."""
        out = self.out
        on_interruption(lambda: "run the command again" if out is None else f"{out} is complete", remove_unfinished)
