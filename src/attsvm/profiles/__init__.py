"""Which norm's margin does an optimiser maximise? :func:`attsvm.margin_profile` trains with it and compares. And which
norm suits a data set? :func:`attsvm.recommend` cross-validates Att-SVMs. :func:`attsvm.profiles.catalogue` has the
profiles of the optimisers of PyTorch, optax and pytorch-optimizer.

``stepped`` says what a profile needs of an optimiser, ``of_optax`` and ``of_torch`` provide it, ``named`` finds the one
that fits an object or a name; ``readings`` measures the trained weights, and ``verdict`` reads the answer from the
ratios.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = ("NORMS", "SEEDS", "STEPS", "import_optimizer", "written")
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
