"""Loaded by the workers of a cluster on this machine, before they connect to its scheduler."""

import logging
from functools import partial
from typing import Any

ENDINGS = {
    "distributed.worker": "Failed to communicate with scheduler during heartbeat.",
    "distributed.worker.state_machine": "ended with CancelledError",
}
"""What a worker logs if its scheduler ends while it waits for an answer, or if it is closed while it computes.

The scheduler of a cluster on this machine lives in the process of the sweep, and both end with it: when the sweep is
finished, stopped or interrupted. Then nothing is wrong. Workers of another cluster keep these messages.
"""


def dask_setup(worker: Any) -> None:
    """Leave these messages out."""
    for name, words in ENDINGS.items():
        logging.getLogger(name).addFilter(partial(_is_without, words))


def _is_without(words: str, record: logging.LogRecord) -> bool:
    return words not in record.getMessage()
