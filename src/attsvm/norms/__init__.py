"""Norms of the Att-SVM family, one file each.

A norm is a subclass of :class:`Norm`. Entrywise ℓp (:class:`Lp`; p = 2 is the Frobenius norm), :class:`Nuclear` and
:class:`Spectral` have solvers of their own. :class:`OnSingularValues`, :class:`OnRows` and :class:`OnColumns` make
norms of matrices from norms of vectors; :func:`schatten` and group norms are of this kind. Norms that norms of the
factors K and Q induce on W = KQ' are in :mod:`attsvm.norms.factors`. A new norm is one new file, in this package or
outside it.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "MissingPiece",
    "OfEachHead",
    "Wrapper",
    "checked",
    "factors",
    "for_heads",
    "norm_spellings",
    "norms_in",
    "parts_of",
    "project_on_ball",
    "refuse_joint_parts",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
