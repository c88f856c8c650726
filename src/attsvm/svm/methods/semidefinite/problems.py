"""Problems with rows of rank one for the nuclear and the spectral norm, many together, and the estimate of the gap."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.svm.certificate import RIGID
from attsvm.svm.constraints.rows import Block, Chosen, PairRows, RowVector
from attsvm.svm.methods.predictor_corrector import Values

Matrix = Float[np.ndarray, "N K K"]


@dataclass(frozen=True, eq=False)
class MatrixProblems:
    """N problems: rows of unit norm and their right sides. A missing row is a row of zeros with right side −1."""

    rows: PairRows
    right: RowVector
    gain: RowVector  # the right sides, 0 where a row is missing
    equality: Bool[np.ndarray, "N m"]

    def select(self, some: Chosen) -> "MatrixProblems":
        return MatrixProblems(self.rows.keep(some), self.right[some], self.gain[some], self.equality[some])

    @cached_property
    def asked(self) -> Bool[np.ndarray, "N m"]:
        """Where a margin is required."""
        return self.right > 0

    @cached_property
    def divisor(self) -> RowVector:
        """The right side where a margin is required, and 1 elsewhere."""
        return np.where(self.asked, self.right, 1.0)

    @cached_property
    def there(self) -> Bool[np.ndarray, "N m"]:
        """Where a row is not missing."""
        return np.asarray(self.right == self.gain)

    @cached_property
    def has_rigid(self) -> bool:
        """Whether there are equalities or rows with right side 0 or less."""
        return bool(np.count_nonzero(self.there & ~self.asked))

    def measure(
        self, weights: Block, image: RowVector, value: Values, multipliers: RowVector, target: float
    ) -> tuple[Values, Values]:
        """Return the distance of W and λ from a solution, and the lower bound.

        The distance is the relative gap after scaling, which is ∞ while a margin is not positive, plus the violation
        of equalities and rows with right side 0 or less, which scaling cannot repair, in units in which RIGID ‖W‖ is
        ``target``. ``image``: A(W). ``value``: N(W), or a bound on it.
        """
        # W/margin is feasible with the value N(W)/margin, and b'λ is a lower bound
        margin = np.minimum.reduce(image / self.divisor, axis=-1, where=self.asked, initial=np.inf)
        bound = np.vecdot(self.gain, multipliers)
        error = np.abs(1 - bound * margin / value)
        if self.has_rigid:
            lacking = np.where(self.there & ~self.asked, self.right * margin[:, None] - image, 0.0)
            rigid = np.where(self.equality, np.abs(image), lacking).max(axis=-1)
            flat = weights.reshape(len(weights), -1)
            error += target / RIGID * np.maximum(rigid, 0.0) / np.sqrt(np.vecdot(flat, flat))
        return np.where((margin > 0) & np.isfinite(error), error, np.inf), bound
