"""Optimizers for PyTorch whose implicit bias is known, and inspection of the attention heads of trained transformers.

The optimizers are subclasses of `torch.optim.Optimizer`. :func:`inspect` measures every layer and head of a model on a
batch.

This module needs the extra ``torch``: ``pip install 'attsvm[torch]'``.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:  # pragma: no cover - only where the extra is not installed
    raise ModuleNotFoundError("attsvm.torch needs PyTorch: pip install 'attsvm[torch]'", name=missing.name) from missing

from attsvm.torch.inspection import (
    CausalTest,
    Comparison,
    Explanation,
    Family,
    HeadProgress,
    Inspection,
    Layout,
    compare,
    inspect,
)
from attsvm.torch.monitoring import AttentionMonitor
from attsvm.torch.optimizers.gradients import NonFiniteGradientError
from attsvm.torch.optimizers.learning_rate import lr_from_adam, lr_from_sgd
from attsvm.torch.optimizers.line_descent import ColumnDescent, RowDescent
from attsvm.torch.optimizers.mirror_descent import MirrorDescent
from attsvm.torch.optimizers.sign_descent import SignDescent
from attsvm.torch.optimizers.spectral_descent import SpectralDescent

__all__ = [
    "AttentionMonitor",
    "CausalTest",
    "ColumnDescent",
    "Comparison",
    "Explanation",
    "Family",
    "HeadProgress",
    "Inspection",
    "Layout",
    "MirrorDescent",
    "NonFiniteGradientError",
    "RowDescent",
    "SignDescent",
    "SpectralDescent",
    "compare",
    "inspect",
    "lr_from_adam",
    "lr_from_sgd",
]


def __dir__() -> list[str]:
    return sorted(__all__)
