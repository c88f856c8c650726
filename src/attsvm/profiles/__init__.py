"""Which norm's margin does an optimizer maximise? :func:`attsvm.margin_profile` trains with it and compares. And which
norm suits a data set? :func:`attsvm.recommend` cross-validates Att-SVMs. :func:`attsvm.profiles.catalogue` has the
profiles of the optimizers of PyTorch, optax and pytorch-optimizer.

``stepped`` says what a profile needs of an optimizer, ``of_optax`` and ``of_torch`` provide it, ``named`` finds the one
that fits an object or a name; ``readings`` measures the trained weights, and ``verdict`` reads the answer from the
ratios.
"""

from attsvm.profiles.catalogue import Catalogue, Entry, catalogue
from attsvm.profiles.profile import margin_profile
from attsvm.profiles.recommendation import Recommendation, recommend
from attsvm.profiles.result import MarginProfile

__all__ = ["Catalogue", "Entry", "MarginProfile", "Recommendation", "catalogue", "margin_profile", "recommend"]


def __dir__() -> list[str]:
    return sorted(__all__)
