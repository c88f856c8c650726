"""Loaded by the workers of a cluster on this machine, before they connect to its scheduler."""

import logging
from typing import Any

LOST = "Failed to communicate with scheduler during heartbeat."
"""What a worker logs with a traceback, as an error, if its scheduler ends while it waits for an answer.

The scheduler of a cluster on this machine lives in the process of the sweep, and ends with it: when the sweep is
finished or interrupted. The worker ends, too, and nothing is wrong. Workers of another cluster keep the message.
"""


def dask_setup(worker: Any) -> None:
    """Leave this message out."""
    logging.getLogger("distributed.worker").addFilter(lambda record: record.msg != LOST)
