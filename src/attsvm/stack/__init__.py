"""Several attention layers: training, the path that they select, and the hierarchical Att-SVM.

:ref:`Provisional <provisional>`: it may change in any minor version.

``layers`` has the forward pass, ``pullback`` the gradient of one layer, ``objective`` joins them; ``training`` runs the
loop of :mod:`attsvm.training`; ``path`` is what each layer of a run sees and selects.
"""

from attsvm._utils.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
