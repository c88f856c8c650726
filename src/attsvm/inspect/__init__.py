"""Inspection of the attention heads of trained transformers: what they select, by what margin, and why.

:func:`inspect` measures every layer and head of a model on a batch, :func:`compare` two checkpoints, and
:class:`AttentionMonitor` a model during training.

This module needs PyTorch, and for models of the transformers library the extra ``inspect``:
``pip install 'attsvm[inspect]'``.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:  # pragma: no cover - only where the extra is not installed
    text = "attsvm.inspect needs PyTorch: pip install 'attsvm[inspect]'"
    raise ModuleNotFoundError(text, name=missing.name) from missing

from attsvm.inspect.comparison import compare
from attsvm.inspect.edits.edit import Edit
from attsvm.inspect.edits.report import EditReport
from attsvm.inspect.edits.scan import Scan
from attsvm.inspect.explanation import Explanation
from attsvm.inspect.families import FAMILIES, Cache, Family, Layout
from attsvm.inspect.inspection import inspect
from attsvm.inspect.monitor import AttentionMonitor
from attsvm.inspect.result import Inspection

__all__ = [
    "FAMILIES",
    "AttentionMonitor",
    "Cache",
    "Edit",
    "EditReport",
    "Explanation",
    "Family",
    "Inspection",
    "Layout",
    "Scan",
    "compare",
    "inspect",
]


def __dir__() -> list[str]:
    return sorted(__all__)
