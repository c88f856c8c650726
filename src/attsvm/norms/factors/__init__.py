"""Norms of W = KQ' that norms of the factors K and Q induce, and the programs that compute them.

:ref:`Provisional <provisional>`: it may change in any minor version.

Each is loaded when it is named: on import from this package, or by :func:`attsvm.norms.parse_norm`.
"""

import lazy_loader

from attsvm.norms.registry import NORMS

NORMS.register_later("gamma2", "attsvm.norms.factors.gamma2:Gamma2")
NORMS.register_later("nu", "attsvm.norms.factors.nu:Nu")
NORMS.register_later("fused_kq", "attsvm.norms.factors.fused:FusedKeysQueries")
NORMS.register_later("fused_heads", "attsvm.norms.factors.fused:FusedHeads")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
