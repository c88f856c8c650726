"""Mirror descent, with the ℓp potential or any other."""

from typing import Literal

from attsvm.errors import ProblemError
from attsvm.optimizers.chain import chain
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.limit import euclidean, limits_of
from attsvm.optimizers.mirror import Mirror
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.numbers import read_scope
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.potential import MirrorOf, Potential, read_potential
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.relative import Relative


def mirror_descent(
    *,
    p: float | None = None,
    potential: Potential | str | None = None,
    learning_rate: float | Schedule = 0.1,
    normalize: bool = True,
    scope: Literal["all", "each"] = "all",
    relative: bool = False,
) -> Optimizer:
    """Mirror descent: ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L(θ), with the potential ψ = (1/p)‖·‖_p^p, entrywise, or any other.

    The mirror variable ∇ψ(θ), for ℓp sign(θ)|θ|^(p−1), is stepped on and kept; θ is computed from it.

    Parameters
    ----------
    p : float
        The exponent of the potential, 1 < p < ∞. p = 2 is (normalized) gradient descent.
    potential : Potential or str, optional
        In place of p: ψ by its gradient and the inverse of that, or the import path ``package.module:name`` of one.
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken. For p > 2 the weights grow only like
        k^(1/(p−1)) under a constant rate; a linearly growing schedule makes up for it.
    normalize : bool
        Divide the gradient by its ℓq norm, q = p/(p − 1): exact however small it is. Otherwise training stalls where
        the gradient underflows. For another potential, the norm is the dual of that of the potential, or ℓ2.
    scope : {"all", "each"}
        One ℓq norm over all parameters, or one for each.
    relative : bool
        Whether η is multiplied by ‖∇ψ(θ)‖_q. Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If a number is out of range, the scope is unknown, or there are not exactly one of p and the potential; or if
        the inverse of the potential does not undo its gradient.

    See Also
    --------
    attsvm.optimizers.steepest_descent
    attsvm.torch.MirrorDescent : In PyTorch.
    attsvm.measures.bregman_divergence

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, Algorithm 1 and equation (5).

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.mirror_descent(p=1.75, learning_rate=0.1)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).norm
    Lp(p=1.75)
    """
    before = (
        *([Normalize(scope)] if normalize else []),
        *([Relative(read_scope(scope))] if relative else []),
        LearningRate(learning_rate),
    )
    if potential is not None:
        if p is not None:
            raise ProblemError(f"potential: expected either potential or p, got both (p = {p!r})")
        return chain(*before, MirrorOf(read_potential(potential)), name="mirror_descent")
    if p is None:
        raise ProblemError("p: expected a value for mirror_descent, got none")
    rule = Mirror(p)
    kind = "gradient descent" if rule.p == 2 else "mirror descent"
    steps = f"normalized {kind}" if normalize else kind
    return chain(
        *before,
        rule,
        name="mirror_descent",
        arguments={
            "p": rule.p,
            "learning_rate": learning_rate,
            "normalize": normalize,
            "scope": read_scope(scope),
            "relative": relative,
        },
        limits=euclidean(steps, scope) if rule.p == 2 else limits_of(rule.norm, steps),
    )


OPTIMIZERS.register("mirror_descent", mirror_descent)
