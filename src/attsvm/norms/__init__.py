"""Norms of the Att-SVM family, one file each.

A norm is a subclass of :class:`Norm`. The built-in ones are entrywise ℓp (:class:`Lp`; p = 2 is the Frobenius norm),
:class:`Nuclear` and :class:`Spectral`. A new norm is one new file, in this package or outside it.
"""

from attsvm.norms.base import Norm
from attsvm.norms.lp import Lp
from attsvm.norms.registry import MissingNorm, parse_norm, read_norm, written_norm
from attsvm.norms.schatten import Nuclear, Spectral

__all__ = ["Lp", "MissingNorm", "Norm", "Nuclear", "Spectral", "parse_norm", "read_norm", "written_norm"]


def __dir__() -> list[str]:
    return sorted(__all__)
