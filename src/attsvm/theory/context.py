"""Bounds by weight decay and by the average of squared gradients of Adam: of contexts, and of the gaps of logits."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.checks import check_number, check_positive

FIRST_GAP = 12.0
"""The least gap of Adam before its average of squared gradients delays it: the largest that was measured."""


@dataclass(frozen=True)
class ContextLimit:
    """The longest context for a weight decay.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    value : float
        V, the value of the Att-SVM.
    decay : float
        λ.
    miss : float
        ε, the probability that the other tokens may have together.
    num_tokens : float
        The longest context; ∞ where it exceeds the floats.

    See Also
    --------
    attsvm.theory.context_limit : Makes one.

    Examples
    --------
    >>> from attsvm.theory import context_limit
    >>> round(context_limit(3.0, decay=0.1, miss=0.1).largest_decay(1000), 4)
    0.0366
    """

    value: float
    decay: float
    miss: float
    num_tokens: float

    def largest_decay(self, num_tokens: float) -> float:
        """The largest λ for a context of this length, 1/(V log((T − 1)(1 − ε)/ε)); ∞ if a uniform softmax is enough.

        Raises
        ------
        ProblemError
            If it is not a number of at least 2.
        """
        number = check_number("num_tokens", num_tokens, "a number >= 2", lambda x: x >= 2)
        # (T − 1) exp(−R/V) = ε/(1 − ε) with R = 1/λ, solved for λ
        logits = np.log((number - 1) * (1 - self.miss) / self.miss)
        return float(1 / (self.value * logits)) if logits > 0 else float("inf")


def context_limit(value: float, *, decay: float, miss: float) -> ContextLimit:
    """Compute the longest context in which weight decay allows an attention head to give a token the probability 1 − ε.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The weights stay in the ball N(W) ≤ R = 1/λ, where the least gap of logits is at most R/V. If all T − 1 other tokens
    have this gap, the selected one has the probability 1/(1 + (T − 1) exp(−R/V)), so that T ≤ 1 + ε/(1 − ε) exp(R/V).
    For T = 2 no weights of the ball do better. For larger T they may: tokens that are not support tokens of the Att-SVM
    have larger gaps.

    Parameters
    ----------
    value : float
        V, the value of the Att-SVM of the selected tokens in the norm of the steps.
    decay : float
        λ of decoupled weight decay on W; for factors K and Q with decay μ each, μ², with the norm of the product.
    miss : float
        0 < ε < 1.

    Returns
    -------
    ContextLimit

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    attsvm.theory.constrained_limit : The weights that a decay leads to, and the probabilities.

    Examples
    --------
    >>> from attsvm.theory import context_limit
    >>> limit = context_limit(3.0, decay=0.05, miss=0.1)
    >>> int(limit.num_tokens)
    88
    """
    value, decay = check_positive("value", value), check_positive("decay", decay)
    miss = check_number("miss", miss, "0 < miss < 1", lambda x: 0 < x < 1)
    with np.errstate(over="ignore"):
        # the others together have the probability ε if (T − 1) exp(−R/V) = ε/(1 − ε)
        longest = 1 + miss / (1 - miss) * np.exp(1 / (decay * value))
    return ContextLimit(value, decay, miss, float(longest))


def adam_steps(gap: float, *, b2: float = 0.999) -> float:
    """Compute a lower bound on the number of steps that Adam on raw gradients needs for a given gap of logits.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    The loss saturates, so that the gradient falls like exp(−gap). Its running root mean square falls by a factor √β₂ a
    step at most, and a step has the size of the gradient over it. So the least gap was measured to grow by ½ log(1/β₂)
    a step at most, about (1 − β₂)/2, from 12 logits on; with rates of at most 0.1 from 8 on. This is not proved. Where
    ε exceeds the root mean square, the gap grows more slowly still. Gradients that are normalised do not saturate.

    Parameters
    ----------
    gap : float
        The least difference between the logits of a selected and another token, of all queries. Weight decay λ allows
        1/(λV), the ``ratio`` of :func:`constrained_limit`.
    b2 : float
        β₂ of Adam or AdamW, 0 < β₂ < 1.

    Returns
    -------
    float
        2 (gap − 12)/log(1/β₂); 0 for a gap of at most 12.

    Raises
    ------
    ProblemError
        If an argument is out of range.

    See Also
    --------
    attsvm.theory.constrained_limit : Where AdamW ends.

    Examples
    --------
    >>> from attsvm.theory import adam_steps
    >>> round(adam_steps(100.0))
    175912
    """
    gap = check_positive("gap", gap)
    b2 = check_number("b2", b2, "0 < b2 < 1", lambda x: 0 < x < 1)
    # ½ log(1/β₂) a step from 12 logits on
    return float(2 * max(gap - FIRST_GAP, 0.0) / -np.log(b2))
