"""attsvm: how training shapes softmax attention.

It solves the Att-SVM to which the weights of an attention layer can converge in direction, with a certificate, trains
attention without losing this direction to rounding, and measures how close a run comes to it. Submodules are imported
on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
