"""Measures of attention heads during training."""

from attsvm.inspect.monitoring.logs import CsvLog, Log, TensorBoardLog, ZarrLog
from attsvm.inspect.monitoring.monitor import AttentionMonitor, Margins

__all__ = ["AttentionMonitor", "CsvLog", "Log", "Margins", "TensorBoardLog", "ZarrLog"]
