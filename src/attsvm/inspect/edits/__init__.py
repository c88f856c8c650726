"""Smallest edits of attention heads: :meth:`attsvm.inspect.Inspection.edit` and ``scan``."""

from attsvm.inspect.edits.edit import Edit
from attsvm.inspect.edits.report import EditReport
from attsvm.inspect.edits.scan import Scan

__all__ = ["Edit", "EditReport", "Scan"]
