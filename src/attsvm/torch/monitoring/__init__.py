"""Measures of attention heads during training."""

from attsvm.torch.monitoring.logs import CsvLog, Log, TensorBoardLog, ZarrLog
from attsvm.torch.monitoring.monitor import AttentionMonitor, Margins

__all__ = ["AttentionMonitor", "CsvLog", "Log", "Margins", "TensorBoardLog", "ZarrLog"]
