"""Figures and tables of the papers: measured again, and judged by a criterion each.

:ref:`Provisional <provisional>`: it may change in any minor version.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "SPELLINGS",
    "TASKS",
    "Experiment",
    "Options",
    "check_experiment",
    "claim_experiment",
    "find_task",
    "make_options",
    "prepare",
    "read_results",
    "run_folder",
    "run_several",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
