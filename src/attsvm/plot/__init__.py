"""Matplotlib figures of problems and results. Each returns its axes and takes ``ax=``.

``run.plot()``, ``solution.plot()`` and so on call the function of their kind: one file for each kind. The others are

==================  ===================================================================
:func:`attention`   the attention of each query over the tokens
:func:`compare`     one quantity of several runs against the steps
:func:`margins`     the margin of each dropped token
:func:`paths`       the weights of runs in the plane
:func:`selection`   the share of queries that select their optimal token, against steps
==================  ===================================================================
"""

from attsvm.plot.attention import attention
from attsvm.plot.compare import compare
from attsvm.plot.margins import margins
from attsvm.plot.paths import paths
from attsvm.plot.selection import selection

__all__ = ["attention", "compare", "margins", "paths", "selection"]


def __dir__() -> list[str]:
    return sorted(__all__)
