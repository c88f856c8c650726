"""Inspection of the attention heads of trained transformers: what they select, with what margin, and why.

:func:`inspect` measures every layer and head of a model on a batch, :func:`compare` two checkpoints, and
:class:`AttentionMonitor` a model during training.

This module needs PyTorch, and for models of the transformers library the extra ``inspect``:
``pip install 'attsvm[inspect]'``.
"""

from attsvm._utils.doors import open_door

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:  # pragma: no cover - only where the extra is not installed
    text = "attsvm.inspect needs PyTorch: pip install 'attsvm[inspect]'"
    raise ModuleNotFoundError(text, name=missing.name) from missing

# for the other packages of attsvm, beside the public names
__door__ = (
    "FoundInspections",
    "Head",
    "HeadChange",
    "HeadGrid",
    "HeadView",
    "Layer",
    "Measure",
    "SavedModel",
    "Series",
    "TestedReason",
    "inspect_series",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
