"""Optimizers for PyTorch whose implicit bias is known. They are subclasses of `torch.optim.Optimizer`.

This module needs the extra ``torch``: ``pip install 'attsvm[torch]'``.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:  # pragma: no cover - only where the extra is not installed
    raise ModuleNotFoundError("attsvm.torch needs PyTorch: pip install 'attsvm[torch]'", name=missing.name) from missing

from attsvm.torch.optimizers.gradients import NonFiniteGradientError
from attsvm.torch.optimizers.learning_rate import lr_from_adam, lr_from_sgd
from attsvm.torch.optimizers.matrix_descent import ColumnDescent, RowDescent, SpectralDescent
from attsvm.torch.optimizers.mirror_descent import MirrorDescent
from attsvm.torch.optimizers.sign_descent import SignDescent

__all__ = [
    "ColumnDescent",
    "MirrorDescent",
    "NonFiniteGradientError",
    "RowDescent",
    "SignDescent",
    "SpectralDescent",
    "lr_from_adam",
    "lr_from_sgd",
]


def __dir__() -> list[str]:
    return sorted(__all__)
