"""Data, training and results of ``attsvm.fit`` and of the commands ``fit``, ``fit-text`` and ``next-token``."""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "ClassifierComparison",
    "LastWord",
    "LayerEvaluation",
    "NextWordOptions",
    "NextWords",
    "TextFit",
    "TextPart",
    "fit_next_words",
    "fit_text",
    "read_corpus",
    "read_new_texts",
    "read_texts",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
