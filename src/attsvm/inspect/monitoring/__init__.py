"""Logs and margins of :class:`attsvm.inspect.AttentionMonitor`."""

from attsvm.inspect.monitoring.logs import CsvLog, Log, TensorBoardLog, ZarrLog
from attsvm.inspect.monitoring.monitor import Margins

__all__ = ["CsvLog", "Log", "Margins", "TensorBoardLog", "ZarrLog"]


def __dir__() -> list[str]:
    return sorted(__all__)
