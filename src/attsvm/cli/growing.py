"""A result that is written while it is computed."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from attsvm._utils.temporaries import remove_unfinished
from attsvm.cli.interrupts import on_interruption

Found = TypeVar("Found")

SECONDS_A_PAGE = 5.0
"""Least time between two pages."""

SHARE_OF_PAGES = 0.33
"""Largest share of the time that is spent on pages."""


class Report(ABC, Generic[Found]):
    """How what is found is shown."""

    @abstractmethod
    def files(self, found: Found, state: str) -> Mapping[str, bytes]:
        """The files of the folder by their names.

        Parameters
        ----------
        found
        state : str
            "running" or "interrupted" if something is missing, "" if it is complete. If the command is interrupted, it
            has less than a second.
        """

    @abstractmethod
    def show(self, found: Found, state: str) -> None:
        """Print it on stdout."""

    @abstractmethod
    def holds(self, found: Found) -> str:
        """What is finished, for the line on stderr."""


class Growing(Generic[Found]):
    """The folder of ``--out`` while what it shows is computed.

    Parameters
    ----------
    out : Path or None
    update : callable or None
        Of :func:`attsvm.cli.shared.updated_folder`.
    report : Report
    wait : float
        Seconds before the first page.
    """

    def __init__(
        self,
        out: Path | None,
        update: Callable[[Mapping[str, bytes]], None] | None,
        report: Report[Found],
        wait: float = 0.0,
    ) -> None:
        self.out, self.update, self.report = out, update, report
        self.next_page = time.monotonic() + wait

    def keep(self, found: Found) -> None:
        """Write the files unless the last ones are new. If the command is interrupted, write and show what is found."""
        if self.update is not None and time.monotonic() >= self.next_page:
            began = time.monotonic()
            self.update(self.report.files(found, "running"))
            took = time.monotonic() - began
            self.next_page = began + took + max(SECONDS_A_PAGE, took / SHARE_OF_PAGES)

        def rescue() -> None:
            remove_unfinished()  # the other threads write no files any more
            if self.update is not None:
                self.update(self.report.files(found, "interrupted"))
            self.report.show(found, "interrupted")

        on_interruption(lambda: f"{self.out or 'the result'} holds {self.report.holds(found)}", rescue)

    def finish(self, found: Found) -> None:
        """Write the complete result, and show it."""
        if self.update is not None:
            self.update(self.report.files(found, ""))
        done = "run the command again" if self.out is None else f"{self.out} is complete"
        on_interruption(lambda: done, remove_unfinished)
