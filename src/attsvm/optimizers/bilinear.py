"""Steepest descent of the product W = KQ' itself, written in the factors."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, over_entries, settle
from attsvm._utils.keywords import suggests
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, parse_norm
from attsvm.optimizers.matrix_steps import heads_apart, shape_of_one
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import Moves, Numbers, Rule
from attsvm.optimizers.scaled_gradient import ScaledGradient, group_by_head, subtree
from attsvm.optimizers.singular import divided, singular_values_and_vectors
from attsvm.optimizers.sizes import Tree, steepest
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import LearningRate
from attsvm.optimizers.unit_steps import Schedule

Array = jax.Array


class _SingularFactor(NamedTuple):
    """A factor X = U Σ V' (d, m): U Σ²/(Σ² + δ) U', nearly the projection on its range, and U Σ/(Σ² + δ) V'."""

    left: Array  # U, (d, k, N)
    shares: Array  # Σ²/(Σ² + δ), (k, N)
    dual: Array  # (d, m, N)

    def projected(self, matrices: Array) -> Array:
        """The part of matrices (d, c, N) in the range of the factor."""
        return contract("rk,kc->rc", self.left * self.shares, contract("rk,rc->kc", self.left, matrices))


@dataclass(frozen=True)
class BilinearSteps(Rule):
    """Change K and Q so that W = KQ' moves by −ηD, D the steepest direction of W in a norm, to first order in η.

    W moves in the tangent space of the products of factors of this shape, {AQ' + KB'}: the gradient G is projected on
    it, and so is the direction D of the projected gradient. With m ≥ d and factors of full rank these are all matrices.
    Singular values σ of a factor are inverted as σ/(σ² + η), so that the term of second order stays below η/16.

    Parameters
    ----------
    of : Norm
        The Frobenius or the spectral norm, or another one with fast steepest directions.
    """

    of: Norm

    scale_free = True

    @property
    def norm(self) -> Norm:
        """The norm of W."""
        return self.of

    def init(self, params: Tree) -> Any:
        """Check that the parameters of each head are the factors of one product, and vectors."""
        _pairs(params)
        return ()

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """The change of K and Q; other parameters are vectors, which move along their unit vectors."""
        gradient = updates.gradient
        pairs = _pairs(params)
        firsts, seconds = zip(*pairs, strict=True)
        factors = {*firsts, *seconds}
        moves = {name: -steepest(Lp(2.0), g) for name, g in gradient.items() if name not in factors}
        # K and Q of a head need one scale
        common: Tree = {}
        logs = updates.resolved().logs
        for pair in pairs:
            common |= ScaledGradient.separate(subtree(gradient, pair), logs).regrouped("all").gradient
        K, Q, of_K, of_Q = (_side_by_side(of, names) for of in (params, common) for names in (firsts, seconds))
        lengths = updates.lengths
        # the matrices of one parameter share its step
        number = K.shape[-1] // len(pairs)
        damping = jnp.concatenate([jnp.resize(lengths[name], (number,)) for name in firsts])
        left, right = _taken_apart(K, damping), _taken_apart(Q, damping)
        # the gradient of W from ∂L/∂K = G Q and ∂L/∂Q = G'K, projected on the tangent space {AQ' + KB'}
        with_K = contract("rm,cm->rc", of_K, right.dual)
        tangent = settle(with_K - left.projected(with_K) + contract("rm,cm->rc", left.dual, of_Q))
        # D, of length one in the norm of W
        along = steepest(self.of, divided(tangent, over_entries(jnp.maximum, jnp.abs(tangent))))
        # A and B with AQ' + KB' = −D, where each factor makes half of the part that both could
        of_rows, of_columns = contract("rc,cm->rm", along, right.dual), contract("rc,rm->cm", along, left.dual)
        for names, moved in (
            (firsts, 0.5 * left.projected(of_rows) - of_rows),
            (seconds, 0.5 * right.projected(of_columns) - of_columns),
        ):
            parts = jnp.split(moved, len(names), axis=-1)
            moves |= {name: part.reshape(params[name].shape) for name, part in zip(names, parts, strict=True)}
        return {name: lengths[name] * moves[name] for name in gradient}, state


@suggests
def bilinear_descent(learning_rate: float | Schedule = 0.05, *, norm: str | float | Norm = "spectral") -> Optimizer:
    """Steepest descent of W = KQ' in a norm, written in the factors: K and Q change so that W moves by −ηD.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    D is the steepest direction of the gradient of W, U V' in the spectral norm. The gradient of W is computed from
    those of K and Q. Also called compositional Muon.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule.
    norm : str, float or Norm
        "spectral" or "frobenius", or another norm whose steepest directions run without LAPACK.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0 or the norm is unknown; in training, if the parameters with two
        or more axes are not K (*heads, d_k, m) and Q (*heads, d_q, m).

    See Also
    --------
    attsvm.optimizers.spectral_descent

    Notes
    -----
    A step costs two singular value decompositions of the factors. Singular values of K and Q below √η move W less.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import bilinear_descent
    >>> problem, descent = random_problem(4, 5, 6, seed=0), bilinear_descent(0.1, norm="frobenius")
    >>> run = attsvm.train(problem, attention="factored", optimizer=descent, steps=2000)
    >>> bool(attsvm.margin_ratio(problem, run) > 0.95)
    True
    """
    rule = BilinearSteps(parse_norm(norm))
    return chain(
        LearningRate(learning_rate),
        rule,
        name="bilinear_descent",
        arguments={"learning_rate": learning_rate, "norm": rule.of},
        steps=Steps("bilinear", rule.of, "step"),
    )


def _pairs(params: Tree) -> list[tuple[str, str]]:
    """The names of K and Q of each head; one pair where the heads are not apart."""
    matrices = [name for name, x in params.items() if x.ndim > 2]
    pairs = group_by_head(matrices)
    shapes = {name: params[name].shape for name in matrices}
    # the parameters of a training have names; those of any other tree are numbered
    others = [name for name in matrices if not name.isdecimal() and name.partition("[")[0] not in ("K", "Q")]
    if others or not pairs or any(len(pair) != 2 or shapes[pair[0]][1:] != shapes[pair[1]][1:] for pair in pairs):
        found = ", ".join(str(shape_of_one(shape)) for shape in shapes.values()) or "none"
        raise ProblemError(
            "params: expected only the matrices K (*heads, d_k, m) and Q (*heads, d_q, m) of factored attention, got "
            f"matrices {found}"
        )
    return [(first, second) for first, second in pairs]


def _side_by_side(tree: Tree, names: tuple[str, ...]) -> Array:
    """The matrices (r, c, heads·B) of several parameters."""
    matrices = [heads_apart(tree[name]) for name in names]
    return matrices[0] if len(matrices) == 1 else jnp.concatenate(matrices, axis=-1)


def _taken_apart(matrices: Array, damping: Array) -> _SingularFactor:
    largest = settle(over_entries(jnp.maximum, jnp.abs(matrices)))
    left, values, right = singular_values_and_vectors(divided(matrices, largest))
    values = values * largest
    damped = values * values + jnp.asarray(damping, matrices.dtype)
    return _SingularFactor(left, values * values / damped, contract("rk,ck->rc", left * (values / damped), right))


OPTIMIZERS.register("bilinear_descent", bilinear_descent)
