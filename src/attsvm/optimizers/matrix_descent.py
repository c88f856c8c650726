"""Descent along a direction of matrices: spectral steps, among them Muon, and steps that normalise rows or columns."""

from typing import Any

from attsvm._utils.keywords import suggests
from attsvm.optimizers.hyperparameters import check_number, is_traced, is_used
from attsvm.optimizers.matrix_directions import (
    MatrixDirection,
    MatrixScope,
    PolarDirection,
    PolarFactor,
    UnitColumnDirection,
    UnitRowDirection,
    parse_polar,
    read_matrix_scope,
)
from attsvm.optimizers.matrix_steps import ByLogit, MatrixSteps
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import DecoupledWeightDecay, Transformation
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import Decaying, DecayingSum, LearningRate, Normalize
from attsvm.optimizers.unit_steps import Schedule

SHORT_STEPS = Decaying(0.05, 100, 0.5)
"""The default rate of steps on factors: 0.05/√(1 + k/100)."""


def matrix_steps(direction: MatrixDirection, scope: MatrixScope) -> Steps:
    """Steps along a direction; matrices side by side step as each does where the columns of a step are separate."""
    # steps of an iteration that stops early are steepest in no norm
    kind = "steepest" if direction.exact else "muon"
    return Steps(kind, direction.norm, "step", scope="heads" if direction.separate_columns else scope)


def matrix_descent(
    name: str,
    direction: MatrixDirection,
    learning_rate: float | Schedule,
    scope: str,
    momentum: float,
    nesterov: bool,
    weight_decay: float,
    by_logit: bool,
    **arguments: Any,
) -> Optimizer:
    """An optimiser whose steps follow a direction; the public factories document its options."""
    has_momentum = is_used(momentum)
    momentum = check_number("momentum", momentum, "0 <= momentum < 1", lambda x: 0 <= x < 1)
    decay = check_number("weight_decay", weight_decay, "a number >= 0", lambda x: x >= 0)
    decays = is_traced(decay) or decay > 0
    rule = MatrixSteps(direction, read_matrix_scope(scope))
    parts: list[Transformation] = []
    # normalised before the sum, so that no gradient outweighs the others
    if has_momentum:
        parts += [Normalize(), DecayingSum(momentum, nesterov)]
    if by_logit:
        parts.append(ByLogit(direction))
    # what a file has of it: all options, by the names of the public functions
    own = {"learning_rate": learning_rate, "scope": scope, "momentum": momentum, "nesterov": nesterov}
    own |= {"weight_decay": decay, "by_logit": by_logit}
    return chain(
        *parts,
        LearningRate(learning_rate),
        DecoupledWeightDecay(rule, decay) if decays else rule,
        name=name,
        arguments=own | arguments,
        steps=matrix_steps(direction, rule.scope),
    )


@suggests
def spectral_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    polar: str | PolarFactor = "exact",
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Spectral steps on matrices: θ − η U V' for the gradient U Σ V', with a choice of what counts as one matrix.

    With momentum this is Muon. On keys and queries K and Q of one head or several, short steps maximise the
    margin in the norm that max(‖K‖, ‖Q‖) induces on W = KQ', for one head the spectral norm.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule; 0.05/√(1 + k/100) by default. The steps have to decay: the sizes of K and Q grow like the sum
        of the steps, and the change of the logits is the product of both.
    polar : str or PolarFactor
        "exact": U V' on the numerical range of the gradient, zero elsewhere. "newton_schulz": the iteration with
        coefficients that converge. "optax", "torch": the coefficients, iterations and precision that
        ``optax.contrib.muon`` and ``torch.optim.Muon`` ship. Or a :class:`NewtonSchulz`.
    scope : {"heads", "fused", "kq"}
        What is one matrix, for parameters of shape (H, d, m), or (d, m) for one head: each K_h and Q_h; the heads side
        by side, [K_1, …, K_H] and [Q_1, …, Q_H]; or all together, [K_1, …, K_H, Q_1, …, Q_H], which takes
        parameters of one shape.
    momentum : float
        β of m⁺ = β m + g in place of the gradient, 0 ≤ β < 1, where g is the gradient over its ℓ2 norm.
    nesterov : bool
        Take β m⁺ + g instead of m⁺.
    weight_decay : float
        λ ≥ 0: θ also shrinks by the factor 1 − ηλ.
    by_logit : bool
        Divide the steps by N(K) + N(Q), N the largest spectral norm of a head.

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    row_descent, column_descent : Steps that normalise each row or column.
    bilinear_descent : Steepest descent of the product W itself.
    steepest_descent : Steepest descent in any norm, for each parameter.

    References
    ----------
    Jordan et al. (2024), *Muon: An optimizer for hidden layers in neural networks*.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import spectral_descent
    >>> problem = random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, attention="factored", optimizer=spectral_descent(), steps=2000)
    >>> bool(attsvm.margin_ratio(problem, run, norm="spectral") > 0.9)
    True
    """
    direction, options = PolarDirection(parse_polar(polar)), (momentum, nesterov, weight_decay, by_logit)
    return matrix_descent("spectral_descent", direction, learning_rate, scope, *options, polar=polar)


@suggests
def row_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Steps of length η for each row: θ − η D, where D is the gradient with each row divided by its length.

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
    direction, options = UnitRowDirection(), (momentum, nesterov, weight_decay, by_logit)
    return matrix_descent("row_descent", direction, learning_rate, scope, *options)


@suggests
def column_descent(
    learning_rate: float | Schedule = SHORT_STEPS,
    *,
    scope: str = "heads",
    momentum: float = 0.0,
    nesterov: bool = True,
    weight_decay: float = 0.0,
    by_logit: bool = False,
) -> Optimizer:
    """Steps of length η for each column: θ − η D, where D is the gradient with each column divided by its length.

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
    direction, options = UnitColumnDirection(), (momentum, nesterov, weight_decay, by_logit)
    return matrix_descent("column_descent", direction, learning_rate, scope, *options)


OPTIMIZERS.register("spectral_descent", spectral_descent)
OPTIMIZERS.register("row_descent", row_descent)
OPTIMIZERS.register("column_descent", column_descent)
