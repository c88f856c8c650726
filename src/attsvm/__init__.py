"""attsvm: how training shapes softmax attention.

It solves the Att-SVM that an attention layer converges to and certifies the answer, trains attention until the
direction of its weights has converged, and measures how close it came. Submodules are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
