"""Optimizers as optax gradient transformations that use the scale taken out of the gradient.

=============================== =========================================================== ==========================
optimizer                       step                                                        Att-SVM norm
=============================== =========================================================== ==========================
``gradient_descent``            θ − η ∇L                                                    ℓ2
``normalized_gradient_descent`` θ − η ∇L/‖∇L‖, one norm over all parameters or each         ℓ2
``polyak``                      θ − (L − L*)/‖∇L‖² ∇L                                       ℓ2
``mirror_descent``              ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L[/‖∇L‖_q], ψ = (1/p)‖·‖_p^p            ℓp
                                or any other potential                                      that of the potential
``steepest_descent``            θ − η argmax of ⟨∇L, D⟩ over N(D) ≤ 1: sign, coordinate     N
                                (greedy), spectral, any other norm
``spectral_descent``            θ − η U V' of ∇L = U Σ V', a matrix a head or several       spectral
``row_descent``                 θ − η ∇L with each row, or column, divided by its length    ℓ∞,2 over rows
``column_descent``                                                                          or columns
``bilinear_descent``            changes K and Q so that KQ' moves by −η U V', U Σ V' = ∇_W  spectral, or another
``adam``, ``muon``              those of optax, on the normalized gradient                  ℓ∞, spectral
``momentum(inner)``             any of these or of optax, on decaying sums                  that of inner
``normalized(inner)``           any of these or of optax, on the normalized gradient        that of inner, or as given
=============================== =========================================================== ==========================

Each is a short :func:`chain` of transformations of the gradient (:class:`Normalize`, :class:`Relative`,
:class:`LearningRate`, :class:`DecayingSum`) and a rule (:class:`Descent`, :class:`Mirror`, :class:`Steepest`,
:class:`Polyak`). Normalized optimizers stay exact if the gradient is too small for a float; with the other optimizers
training stalls then. A new optimizer is a function that returns a chain, registered in ``OPTIMIZERS``; a new kind of
step is a :class:`Rule`.
"""

from attsvm.optimizers.bilinear_descent import BilinearSteps, bilinear_descent
from attsvm.optimizers.chain import Chain, Context, Transformation, chain
from attsvm.optimizers.configuration import configuration, from_configuration
from attsvm.optimizers.foreign import rule_of
from attsvm.optimizers.gradient import Descent, gradient_descent, normalized_gradient_descent
from attsvm.optimizers.limit import Limit
from attsvm.optimizers.line_descent import UnitColumns, UnitRows, column_descent, row_descent
from attsvm.optimizers.matrix_steps import Direction, MatrixSteps
from attsvm.optimizers.mirror import Mirror, mirror_descent
from attsvm.optimizers.of_optax import adam, muon
from attsvm.optimizers.optimizer import GradientStep, Optimizer
from attsvm.optimizers.polar import POLAR_FACTORS, ExactPolarFactor, NewtonSchulz, PolarFactor, parse_polar
from attsvm.optimizers.polyak import Polyak, polyak
from attsvm.optimizers.potential import MirrorOf, Potential, SquaredNorm
from attsvm.optimizers.registry import OPTIMIZERS, optimizer_options, parse_optimizer
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scale, Scales, rescaled
from attsvm.optimizers.spectral_descent import PolarDirection, spectral_descent
from attsvm.optimizers.steepest import Steepest, steepest_descent
from attsvm.optimizers.transformations import (
    ByLogit,
    Decaying,
    DecayingSum,
    LearningRate,
    Normalize,
    Relative,
    WeightDecay,
)
from attsvm.optimizers.wrapped import momentum, normalized

__all__ = [
    "OPTIMIZERS",
    "POLAR_FACTORS",
    "BilinearSteps",
    "ByLogit",
    "Chain",
    "Context",
    "Decaying",
    "DecayingSum",
    "Descent",
    "Direction",
    "ExactPolarFactor",
    "GradientStep",
    "LearningRate",
    "Limit",
    "MatrixSteps",
    "Mirror",
    "MirrorOf",
    "NewtonSchulz",
    "Normalize",
    "Optimizer",
    "PolarDirection",
    "PolarFactor",
    "Polyak",
    "Potential",
    "Relative",
    "Rule",
    "Scale",
    "Scales",
    "SquaredNorm",
    "Steepest",
    "Transformation",
    "UnitColumns",
    "UnitRows",
    "WeightDecay",
    "adam",
    "bilinear_descent",
    "chain",
    "column_descent",
    "configuration",
    "from_configuration",
    "gradient_descent",
    "mirror_descent",
    "momentum",
    "muon",
    "normalized",
    "normalized_gradient_descent",
    "optimizer_options",
    "parse_optimizer",
    "parse_polar",
    "polyak",
    "rescaled",
    "row_descent",
    "rule_of",
    "spectral_descent",
    "steepest_descent",
]


def __dir__() -> list[str]:
    return sorted(__all__)
