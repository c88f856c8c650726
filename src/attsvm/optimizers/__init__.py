"""Optimisers as optax gradient transformations that use the scale taken out of the gradient.

=============================== =========================================================== ==========================
optimiser                       step                                                        Att-SVM norm
=============================== =========================================================== ==========================
``gradient_descent``            θ − η ∇L                                                    ℓ2
``normalized_gradient_descent`` θ − η ∇L/‖∇L‖, one norm over all parameters or each         ℓ2
``polyak``                      θ − (L − L*)/‖∇L‖² ∇L                                       ℓ2
``log_gradient_descent``        θ − η ∇L/(L − L*), the gradient of log(L − L*)              ℓ2
``mirror_descent``              ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L[/‖∇L‖_q], ψ = (1/p)‖·‖_p^p            ℓp
                                or any other potential                                      that of the potential
``steepest_descent``            θ − η argmax of ⟨∇L, D⟩ over N(D) ≤ 1: sign, coordinate     N
                                (greedy), spectral, any other norm
``spectral_descent``            θ − η U V' of ∇L = U Σ V', a matrix a head or several       spectral
``row_descent``                 θ − η ∇L with each row, or column, divided by its length    ℓ∞,2 over rows
``column_descent``                                                                          or columns
``bilinear_descent``            changes K and Q so that KQ' moves by −η U V', U Σ V' = ∇_W  spectral, or another
``adam``, ``muon``              those of optax, on the normalised gradient                  ℓ∞, spectral
``momentum(inner)``             any of these or of optax, on decaying sums                  that of inner
``normalized(inner)``           any of these or of optax, on the normalised gradient        that of inner, or as given
=============================== =========================================================== ==========================

Each is a short :func:`chain` of transformations of the gradient and a rule, in the manner of optax
(``attsvm.optimizers.rule``). Normalised optimisers stay exact if the gradient is too small for a float; with the
other optimisers training stalls then. A new optimiser is a transformation of optax: if its ``update`` has a parameter
``log_scale``, it gets gradients with entries near 1 and the logarithm of what was taken out of them. To copy,
``adam`` in ``wrapped.py`` is the shortest, ``log_gradient.py`` defines a transformation, and the ``chain`` in
``steepest.py`` takes steps that are steepest in a norm. ``chain`` takes the norm, or all that the limit depends on as
:class:`Steps`. Only steps with a row in ``theory/standings.toml`` are "measured".
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "Growing",
    "Rule",
    "ScaledGradient",
    "bounded",
    "configuration",
    "converted",
    "limit_field",
    "limit_of",
    "multiplied",
    "optimizer_of",
    "read_steps",
    "rule_of",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
