"""Smallest edits of attention heads: :meth:`attsvm.inspect.Inspection.edit` and ``scan``."""
