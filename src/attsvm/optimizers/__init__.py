"""Optimisers as gradient transformations in optax's sense, which know the scale that was taken out of the gradient.

=============================== ======================================================= ====================
optimiser                       step                                                    Att-SVM norm
=============================== ======================================================= ====================
``gradient_descent``            θ − η ∇L; constant, scheduled or relative η             ℓ2
``normalized_gradient_descent`` θ − η ∇L/‖∇L‖, one norm over all parameters or each     ℓ2
``polyak``                      θ − (L − L*)/‖∇L‖² ∇L                                   ℓ2
``mirror_descent``              ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L[/‖∇L‖_q], ψ = (1/p)‖·‖_p^p        ℓp
``steepest_descent``            θ − η argmax of ⟨∇L, D⟩ over N(D) ≤ 1: sign, coordinate N
                                (greedy), spectral
``momentum(inner)``             any of them, or of optax's, on decaying sums            inner's
``normalized(inner)``           any of them, or of optax's, on the normalised gradient  inner's, or as given
=============================== ======================================================= ====================

Normalised ones step on, exactly, where the gradient is too small for a float; for the others it is an honest zero.
``optimizer`` holds what they are made of, ``scales`` the arithmetic of gradients with a scale taken out, ``foreign``
how optax's own are run, ``configuration`` how they are written to a file.
"""

from attsvm.optimizers.configuration import FACTORIES, configuration, from_configuration
from attsvm.optimizers.foreign import Foreign, rule_of
from attsvm.optimizers.gradient_descent import gradient_descent, normalized_gradient_descent
from attsvm.optimizers.mirror_descent import mirror_descent
from attsvm.optimizers.momentum import momentum
from attsvm.optimizers.normalized import normalized
from attsvm.optimizers.optimizer import Optimizer, Rule
from attsvm.optimizers.polyak import polyak
from attsvm.optimizers.scales import Tree, over_trials, rescaled
from attsvm.optimizers.steepest_descent import steepest_descent

__all__ = [
    "FACTORIES",
    "Foreign",
    "Optimizer",
    "Rule",
    "Tree",
    "configuration",
    "from_configuration",
    "gradient_descent",
    "mirror_descent",
    "momentum",
    "normalized",
    "normalized_gradient_descent",
    "over_trials",
    "polyak",
    "rescaled",
    "rule_of",
    "steepest_descent",
]
