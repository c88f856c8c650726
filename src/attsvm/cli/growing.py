"""A page that is written again and again while its result is computed."""

import time
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

Found = TypeVar("Found")

SECONDS_A_PAGE = 5.0
"""Least time between two pages."""

SHARE_OF_PAGES = 0.33
"""Largest share of the time that is spent on pages."""


class Growing(Generic[Found]):
    """The folder of ``--out`` while what it shows is computed.

    Parameters
    ----------
    update : callable or None
        Of :func:`attsvm.cli.shared.updated_folder`; None without ``--out``.
    files : callable
        The files of a result by their names. Its second argument is "running" or "interrupted" if something is missing,
        "" if the result is complete.
    wait : float
        Seconds before the first page.

    Attributes
    ----------
    latest : Found or None
        The latest result.
    """

    def __init__(
        self,
        update: Callable[[Mapping[str, bytes]], None] | None,
        files: Callable[[Found, str], Mapping[str, bytes]],
        wait: float = 0.0,
    ) -> None:
        self.update, self.files = update, files
        self.latest: Found | None = None
        self.next_page = time.monotonic() + wait

    def keep(self, found: Found) -> None:
        """Keep the latest result, and write it unless the last page is new."""
        self.latest = found
        if self.update is not None and time.monotonic() >= self.next_page:
            began = time.monotonic()
            self.write(found, "running")
            took = time.monotonic() - began
            self.next_page = began + took + max(SECONDS_A_PAGE, took / SHARE_OF_PAGES)

    def write(self, found: Found, state: str) -> None:
        """Write the files of a result."""
        if self.update is not None:
            self.update(self.files(found, state))
