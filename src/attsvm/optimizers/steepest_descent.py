"""Steepest descent in a norm: sign, coordinate, spectral descent and others."""

from attsvm.norms import Norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.limit import limits_of
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.on_factors import INDUCED, of_each_head
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.relative import Relative
from attsvm.optimizers.steepest import Steepest


def steepest_descent(
    *,
    norm: str | float | Norm,
    learning_rate: float | Schedule = 0.1,
    normalize: bool = True,
    relative: bool = False,
) -> Optimizer:
    """Steepest descent in a norm N: θ − η D, where D maximises ⟨∇L(θ), D⟩ over N(D) ≤ 1.

    ℓ∞ gives sign descent, ℓ1 (greedy) coordinate descent, the spectral norm U V' of the gradient's singular vectors, ℓ2
    normalized gradient descent. Each parameter is stepped on separately, and so are those of each attention head.

    Parameters
    ----------
    norm : str, float or Norm
        "linf", "l1", "spectral", "nuclear", "frobenius", any p ≥ 1 of an entrywise norm, or any norm that provides
        ``steepest`` in JAX. For a vector, spectral and nuclear mean ℓ2.
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    normalize : bool
        Steps of length η in N, exact however small the gradient is; otherwise of η N*(∇L), and training stalls where
        the gradient underflows.
    relative : bool
        Whether the step is multiplied by N(θ). Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, the norm is unknown, or it does not provide ``steepest``.

    See Also
    --------
    attsvm.optimizers.mirror_descent, attsvm.optimizers.spectral_descent
    attsvm.torch.SignDescent : In PyTorch, for ℓ∞.

    References
    ----------
    Gunasekar, Lee, Soudry and Srebro (2018), *Characterizing Implicit Bias in Terms of Optimization Geometry*, section
    3, for linear models. What is known for attention: :func:`attsvm.predict_direction`.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.steepest_descent(norm="spectral", learning_rate=0.05)
    >>> descent.norm
    Spectral()
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    rule = Steepest(norm)
    of_factors = {"factored": of_each_head(INDUCED[rule.norm])} if rule.norm in INDUCED else {}
    return chain(
        *([Normalize("each")] if normalize else []),
        *([Relative("each")] if relative else []),
        LearningRate(learning_rate),
        rule,
        name="steepest_descent",
        arguments={"norm": rule.norm, "learning_rate": learning_rate, "normalize": normalize, "relative": relative},
        limits={**limits_of(rule.norm, "steepest descent"), **of_factors},
    )


OPTIMIZERS.register("steepest_descent", steepest_descent)
