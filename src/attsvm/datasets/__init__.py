"""Data: sources of problems, one file each, and sequences and bags for the estimator.

A data source is a subclass of :class:`Source`. The built-in ones are scikit-learn's handwritten digits, on canvases or
in patches, and problem files. A new source is one new file, in this package or outside it.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "Bags",
    "check_columns",
    "class_names",
    "frame_of",
    "in_blocks",
    "is_stored",
    "is_table",
    "map_vectors",
    "read_columns",
    "sequences_of",
    "shown",
    "source_help",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
