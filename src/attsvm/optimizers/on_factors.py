"""What steps on keys and queries converge to: the norm that they induce on W = KQ', and what was measured of it.

Steepest descent in max(N(K), N(Q)) is conjectured to maximise the margin in the least max(N(K), N(Q))² over W = KQ'.
"""

from dataclasses import dataclass, replace

import numpy as np

from attsvm.norms import (
    FusedHeads,
    FusedKeysQueries,
    Gamma2,
    Lp,
    MaxOfHeads,
    Norm,
    Nu,
    Nuclear,
    OnColumns,
    OnRows,
    Spectral,
    SumOfHeads,
    induced_norm,
)
from attsvm.optimizers.standing import Limit, Standing

SHORT = 1.5
"""The change of a logit in a step up to which the induced norm was measured."""

CROSSOVER = 30.0
"""The change from which spectral steps end at a larger margin ratio in the nuclear norm than in their own."""

_OF_FACTORS = Spectral(), Lp(np.inf), OnRows(Lp(np.inf)), OnColumns(Lp(np.inf))
INDUCED: dict[Norm, Norm] = {norm: induced_norm(norm, num_columns=1) for norm in _OF_FACTORS}
"""The least max(N(K), N(Q))² over W = KQ', as a norm of W, for norms N of steps on K and Q; without the factor 1/m."""


@dataclass(frozen=True)
class Measured:
    """Margin ratios, mean / least, in the norm that steps induce, and in the nuclear norm after long steps.

    Long steps are relative to the size of the factors, 21,000 on 24 problems with n = 6, T = 8, d = m = 10.
    ``long_is_nuclear`` is False if they were measured to end elsewhere.
    """

    short: str | None = None
    long: str | None = None
    long_is_nuclear: bool = True

    def limit(self, norm: Norm, of_long: Norm) -> Limit:
        """The limit for steps of every length."""
        far = f"no theorem; margin ratio in the nuclear norm, with steps relative to the weights: {self.long}"
        if not self.long_is_nuclear:
            beyond = Limit(None, Standing.MEASURED, f"long steps: none of the known norms; {far}")
        elif self.long is None:
            beyond = Limit(of_long, Standing.CONJECTURE, "long steps: nuclear; no theorem; not measured")
        else:
            beyond = Limit(of_long, Standing.MEASURED, f"long steps: nuclear; {far}")
        between = (
            "no theorem; spectral steps that change a logit by 1 to 30 were measured to end between two norms (other "
            "steps: not measured)"
        )
        middle = Limit(norm, Standing.CONJECTURE, between, logit_change=CROSSOVER, beyond=beyond)
        if self.short is None:
            return Limit(norm, logit_change=SHORT, beyond=middle)
        source = f"no theorem; steps that change no logit by more than about 1; measured: margin ratio {self.short}"
        return Limit(norm, Standing.MEASURED, source, logit_change=SHORT, beyond=middle)


_SIZES = "24 problems with n = 6, T = 8, d = m = 10"
_OF_HEADS = "24 problems with 2 and 3 heads, 60,000 steps"
MEASURED: dict[Norm, Measured] = {
    Spectral(): Measured(f"0.989 / 0.880 on {_SIZES}, 60,000 steps", "0.995 / 0.984"),
    Gamma2(): Measured(f"0.997 / 0.994 on {_SIZES}, 300,000 steps", "0.70 / 0.52", long_is_nuclear=False),
    Nuclear(): Measured(f"0.989 / 0.962 on {_SIZES}, 300,000 steps", "0.96 / 0.93"),
    Nu(): Measured(
        f"0.952 / 0.926 by sign descent on {_SIZES}, 300,000 steps",
        "0.64 / 0.42",
        long_is_nuclear=False,
    ),
    FusedKeysQueries(): Measured(f"0.992 / 0.981 on {_SIZES}, 60,000 steps"),
    MaxOfHeads(Spectral()): Measured(f"0.993 / 0.960 on {_OF_HEADS}"),
    FusedHeads(): Measured(f"0.993 / 0.986 on {_OF_HEADS}"),
}

DECAYED: dict[Norm, str] = {
    Spectral(): f"0.998 / 0.973 on {_SIZES}, 60,000 steps",
    MaxOfHeads(Spectral()): f"0.999 / 0.997 on {_OF_HEADS}",
    FusedHeads(): f"0.998 / 0.994 on {_OF_HEADS}",
}
"""The same for steps with weight decay."""

LARGEST_DECAY = 0.02
"""The weight decay up to which this was measured."""

AS_SHIPPED = Limit(
    None,
    Standing.MEASURED,
    "measured for the coefficients that optax and PyTorch ship: none of the known norms; mean margin ratios on "
    f"{_SIZES}: spectral 0.68, nuclear 0.70, Frobenius 0.82",
)
"""What is known of Muon whose polar factor does not converge."""

_FAR = Limit(None, source="long steps: not measured")
_OF_ADAM = (
    "no theorem; not measured without weight decay; with a decay of 0.2: margin ratio 0.971 / 0.943 on 24 problems"
)
BY_ADAM = Limit(
    Nu(),
    source=_OF_ADAM,
    logit_change=CROSSOVER,
    beyond=_FAR,
    several=Limit(
        MaxOfHeads(Nu()),
        source=f"several heads: not measured; one head: {_OF_ADAM}",
        logit_change=CROSSOVER,
        beyond=_FAR,
    ),
)
"""What is known of Adam."""


def on_factors(norm: Norm | None, of_heads: Norm | None = None) -> Limit:
    """The limit of steps on factors, which depends on how far a step changes the logits.

    Parameters
    ----------
    norm : Norm or None
        The norm of W that the steps induce; None if it is not known.
    of_heads : Norm, optional
        That of the weights of several heads together.
    """
    several = None if of_heads is None else _known(of_heads).limit(of_heads, SumOfHeads(Nuclear()))
    of_one = Limit(None) if norm is None else _known(norm).limit(norm, Nuclear())
    return replace(of_one, several=several or Limit(None))


def of_each_head(norm: Norm | None) -> Limit:
    """The limit of steps on each factor of each head by itself."""
    return on_factors(norm, None if norm is None else MaxOfHeads(norm))


def decayed(limit: Limit, decay: float) -> Limit:
    """The limit of the same steps with weight decay, which forgets the first steps and bounds the logits."""
    beyond, several = (None if part is None else decayed(part, decay) for part in (limit.beyond, limit.several))
    limit = replace(limit, beyond=beyond, several=several)
    if limit.norm is None or decay == 0:
        return limit
    ratio = DECAYED.get(limit.norm) if limit.logit_change == SHORT else None
    if ratio is None:
        return replace(limit, standing=Standing.CONJECTURE, source="not measured with weight decay; " + limit.source)
    source = f"measured for a decay of {LARGEST_DECAY}: margin ratio {ratio}"
    if decay <= LARGEST_DECAY:
        return replace(
            limit, standing=Standing.MEASURED, source=f"no theorem; weight decay bounds the logits; {source}"
        )
    bound = f"a weight decay of {decay:g} bounds the logits by about {decay**-2:.3g}, often too little to select tokens"
    return replace(limit, standing=Standing.CONJECTURE, source=f"no theorem; {bound}; {source}")


def _known(norm: Norm) -> Measured:
    return MEASURED.get(norm, Measured())
