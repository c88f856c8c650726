"""Steps that divide each row, or each column, of the gradient by its length."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_entries, total
from attsvm.norms import Lp, Norm, OnColumns, OnRows
from attsvm.optimizers.matrix_steps import SHORT_STEPS, Direction, matrix_descent
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.singular import divided
from attsvm.optimizers.transformations import Schedule

Array = jax.Array


class _UnitLines(Direction):
    """Base class: each line of matrices along one axis over its length."""

    _axis: ClassVar[Literal[0, 1]]

    def of(self, matrices: Array) -> Array:
        """Lines of length 1 or 0."""
        return divided(matrices, self._lengths(matrices))

    def size(self, matrices: Array) -> Array:
        return over_entries(jnp.maximum, self._lengths(matrices))

    def _lengths(self, matrices: Array) -> Array:
        return jnp.sqrt(total(matrices * matrices, axis=self._axis))


@dataclass(frozen=True)
class UnitRows(_UnitLines):
    """Each row over its length."""

    _axis = 1

    @property
    def norm(self) -> Norm:
        """The length of the longest row."""
        return OnRows(Lp(np.inf))


@dataclass(frozen=True)
class UnitColumns(_UnitLines):
    """Each column over its length."""

    _axis = 0

    @property
    def norm(self) -> Norm:
        """The length of the longest column."""
        return OnColumns(Lp(np.inf))

    separate_columns = True

    def reach(self, matrices: Array) -> Array:
        """The sum of the columns' lengths: all columns of the other factor move by one."""
        return over_entries(jnp.add, self._lengths(matrices))


def row_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Steps of length η of each row: θ − η D, where D is the gradient with each row divided by its length.

    On keys and queries K (d, m) and Q, short steps maximise the margin in the γ2 norm of W = KQ'.

    Parameters
    ----------
    learning_rate, scope, momentum, nesterov, weight_decay
        As in :func:`spectral_descent`. With scope "fused" a row is that of [K_1, …, K_H].
    by_logit : bool
        Divide the steps by the sum of the lengths of the longest rows of K and Q.

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    spectral_descent, column_descent

    Examples
    --------
    >>> from attsvm.optimizers import row_descent
    >>> row_descent(0.02).limit("factored").norm
    Gamma2()
    """
    return matrix_descent(
        "row_descent",
        UnitRows(),
        learning_rate=learning_rate,
        scope=scope,
        momentum=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        by_logit=by_logit,
        arguments={},
    )


def column_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Steps of length η of each column: θ − η D, where D is the gradient with each column divided by its length.

    On keys and queries K (d, m) and Q, short steps maximise the margin in the nuclear norm of W = KQ'.

    Parameters
    ----------
    learning_rate, scope, momentum, nesterov, weight_decay
        As in :func:`spectral_descent`; the columns are the same in every scope.
    by_logit : bool
        Divide the steps by the sum of the lengths of all columns of K and Q.

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    spectral_descent, row_descent

    Examples
    --------
    >>> from attsvm.optimizers import column_descent
    >>> column_descent(0.3, by_logit=True).limit("factored").norm
    Nuclear()
    """
    return matrix_descent(
        "column_descent",
        UnitColumns(),
        learning_rate=learning_rate,
        scope=scope,
        momentum=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        by_logit=by_logit,
        arguments={},
    )


OPTIMIZERS.register("row_descent", row_descent)
OPTIMIZERS.register("column_descent", column_descent)
