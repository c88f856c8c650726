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

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = ("DATA", "DataAxes", "DataSeries", "cells", "draw_layers", "drawn_matrix", "keep", "line")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
