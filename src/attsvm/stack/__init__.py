"""Several attention layers: training, the path that they select, and the hierarchical Att-SVM.

:ref:`Provisional <provisional>`: it may change in any minor version.

``layers`` has the forward pass, ``pullback`` the gradient of one layer, ``objective`` joins them; ``training`` runs the
loop of :mod:`attsvm.training`; ``path`` is what each layer of a run sees and selects.
"""

from attsvm.stack.path import Layer
from attsvm.stack.run import StackRun
from attsvm.stack.stack import Stack

__all__ = ["Layer", "Stack", "StackRun"]


def __dir__() -> list[str]:
    return sorted(__all__)
