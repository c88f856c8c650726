"""Next-token prediction: which tokens of a context one layer of attention copies from."""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = ("FiniteMinimiser", "ProblemGraph")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
