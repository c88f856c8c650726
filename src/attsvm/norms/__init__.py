"""Norms of the Att-SVM family, one file each.

A norm is a subclass of :class:`Norm`. Entrywise ℓp (:class:`Lp`; p = 2 is the Frobenius norm), :class:`Nuclear` and
:class:`Spectral` have solvers of their own. :class:`OnSingularValues`, :class:`OnRows` and :class:`OnColumns` make
norms of matrices from norms of vectors; :func:`schatten` and group norms are of this kind. Norms that norms of the
factors K and Q induce on W = KQ' are in :mod:`attsvm.norms.factors`. A new norm is one new file, in this package or
outside it.
"""

from attsvm.norms import factors as factors
from attsvm.norms.attention_heads import JointNorm, MaxOfHeads, SumOfHeads
from attsvm.norms.attention_heads import OfEachHead as OfEachHead
from attsvm.norms.attention_heads import for_heads as for_heads
from attsvm.norms.base import MissingPiece as MissingPiece
from attsvm.norms.base import Norm
from attsvm.norms.base import parts_of as parts_of
from attsvm.norms.base import project_on_ball as project_on_ball
from attsvm.norms.base import refuse_joint_parts as refuse_joint_parts
from attsvm.norms.check import NormCheck, check
from attsvm.norms.check import checked as checked
from attsvm.norms.lifted import OnColumns, OnRows, OnSingularValues, schatten
from attsvm.norms.lp import Lp
from attsvm.norms.owl import Owl
from attsvm.norms.registry import norm_spellings as norm_spellings
from attsvm.norms.registry import norms_in as norms_in
from attsvm.norms.registry import parse_norm, read_norm, written_norm
from attsvm.norms.rotary import Rotary
from attsvm.norms.scaled import Scaled
from attsvm.norms.scaled import Wrapper as Wrapper
from attsvm.norms.schatten import Nuclear, Spectral

__all__ = [
    "JointNorm",
    "Lp",
    "MaxOfHeads",
    "Norm",
    "NormCheck",
    "Nuclear",
    "OnColumns",
    "OnRows",
    "OnSingularValues",
    "Owl",
    "Rotary",
    "Scaled",
    "Spectral",
    "SumOfHeads",
    "check",
    "parse_norm",
    "read_norm",
    "schatten",
    "written_norm",
]

# for the other packages of attsvm, beside the public names
__door__ = (
    "MissingPiece",
    "OfEachHead",
    "Wrapper",
    "checked",
    "for_heads",
    "norm_spellings",
    "norms_in",
    "parts_of",
    "project_on_ball",
    "refuse_joint_parts",
)


def __dir__() -> list[str]:
    return sorted(__all__)
