"""Optimisers for PyTorch with a known implicit bias. They are subclasses of `torch.optim.Optimizer`.

This module needs the extra ``torch``: ``pip install 'attsvm[torch]'``.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as missing:  # pragma: no cover - only where the extra is not installed
    raise ModuleNotFoundError("attsvm.torch needs PyTorch: pip install 'attsvm[torch]'", name=missing.name) from missing

from attsvm.torch.gradients import NonFiniteGradientError
from attsvm.torch.learning_rate import lr_from_adam, lr_from_sgd
from attsvm.torch.matrix_descent import ColumnDescent, RowDescent
from attsvm.torch.mirror_descent import MirrorDescent
from attsvm.torch.param_groups import param_groups_of
from attsvm.torch.sign_descent import SignDescent
from attsvm.torch.spectral_descent import SpectralDescent

__all__ = [
    "ColumnDescent",
    "MirrorDescent",
    "NonFiniteGradientError",
    "RowDescent",
    "SignDescent",
    "SpectralDescent",
    "lr_from_adam",
    "lr_from_sgd",
    "param_groups_of",
]


def __dir__() -> list[str]:
    return sorted(__all__)
