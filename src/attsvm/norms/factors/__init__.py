"""Norms of W = KQ' that norms of the factors K and Q induce, and the programs that compute them.

:ref:`Provisional <provisional>`: it may change in any minor version.

Each is loaded when it is named: on import from this package, or by :func:`attsvm.norms.parse_norm`.
"""

from attsvm._utils.doors import open_door
from attsvm.norms.registry import NORMS

NORMS.register_later("gamma2", "attsvm.norms.factors.gamma2:Gamma2")
NORMS.register_later("nu", "attsvm.norms.factors.nu:Nu")
NORMS.register_later("fused_kq", "attsvm.norms.factors.fused:FusedKeysQueries")
NORMS.register_later("fused_heads", "attsvm.norms.factors.fused:FusedHeads")

# the programs, for the solvers of these norms
__door__ = (
    "Balance",
    "Densities",
    "Diagonal",
    "KeyQueryFactors",
    "SymmetricBlocks",
    "bound_by_atoms",
    "largest_in_dual_ball",
    "largest_margin",
    "nearest_multiple",
    "spans",
)

__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
