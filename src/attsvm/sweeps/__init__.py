"""Sweeps: grids of trials, computed on all cores or a cluster, and stored as they finish.

A new source of problems, a new measure and a new ready sweep of another package are named by their import paths.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = ("KINDS", "LANES", "STATUSES", "YES_NO", "KindOfConvergence", "define")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
