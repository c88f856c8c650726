"""Whether another norm suits the data of a fit better: :func:`attsvm.recommend`, where it takes little."""

from typing import NamedTuple

import numpy as np
import scipy

from attsvm._utils.shapes import Float
from attsvm.problem import Problem
from attsvm.profiles import Recommendation, recommend
from attsvm.results import Status
from attsvm.statistics import LEVEL
from attsvm.svm import Solution

FEWEST_SEQUENCES, MOST_SEQUENCES = 20, 200
"""Numbers of training sequences for which norms are compared: of fewer a share says little, of more it takes long."""

MOST_NUMBERS = 4_000
"""Most logits times entries of a token for which norms are compared."""


class OtherNorms(NamedTuple):
    """The Att-SVMs of several norms, compared on sequences that they were not solved for."""

    tokens: str  # which tokens they should select: ``optimal`` or ``relevant``
    found: Recommendation

    @property
    def half_width(self) -> Float[np.ndarray, " N"]:
        """Half of the interval of each gain, at 95 % for all of them together (Bonferroni)."""
        # the best of several norms has a large gain by chance more often than a given one
        tail = (1 - LEVEL) / 2 / (len(self.found.norms) - 1)
        found: np.ndarray = scipy.stats.norm.ppf(1 - tail) * self.found.gain_error
        return found

    @property
    def better(self) -> int | None:
        """The place of the norm of the largest share, if its gain over the first one is more than half its interval."""
        best = int(np.argmax(self.found.share))
        return best if self.found.gain[best] > self.half_width[best] else None


def compare_norms(train: Problem, tokens: str, selected: np.ndarray, solution: Solution | None) -> OtherNorms | None:
    """Compare norms on training sequences by the ``tokens`` that should be selected; None for few and for many.

    None as well if these tokens have no Att-SVM, which does not depend on the norm. ``solution``: their Att-SVM.
    """
    numbers = train.canonical.allowed.size * train.dim
    if not FEWEST_SEQUENCES <= train.num_sequences <= MOST_SEQUENCES or numbers > MOST_NUMBERS:
        return None
    if solution is None or solution.status != Status.OPTIMAL or solution.value == 0:
        return None
    return OtherNorms(tokens, recommend(train, selected))
