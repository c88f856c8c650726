"""
A custom norm
=============

A norm is a class. This one charges three times as much for the first half of the rows as for the second. A value, a
dual norm and a proximal map are enough to solve the Att-SVM with a certificate.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

import attsvm


@dataclass(frozen=True)
class DearRows(attsvm.norms.Norm):
    """Σ c_i |w_ij|, or with ``dual_side`` its dual norm, max |w_ij| / c_i."""

    price: float = 3.0
    dual_side: bool = False
    name = "dear_rows"

    def prices(self, x):
        return np.where(np.arange(len(x)) < len(x) // 2, self.price, 1.0).reshape(-1, *[1] * (x.ndim - 1))

    def value(self, x, axes=2):
        return (abs(x) / self.prices(x)).max() if self.dual_side else (abs(x) * self.prices(x)).sum()

    @property
    def dual(self):
        return DearRows(self.price, not self.dual_side)

    def prox(self, x, step):
        return np.sign(x) * np.maximum(abs(x) - step * self.prices(x), 0)


problem = attsvm.datasets.random_problem(6, 8, 10, seed=0)
solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), norm=DearRows())
print(solution)
axis = solution.plot()
axis.set_title("most weights are in the cheap rows")
plt.gcf().set_size_inches(5, 4)
