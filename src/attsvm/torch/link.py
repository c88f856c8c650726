"""The link from mirror variables to weights, w = sign(z)|z|^(1/(p−1)) + δz, its slope and its inverse.

δ = 0 belongs to the potential (1/p)‖w‖_p^p. With δ > 0 the potential is the infimal convolution of it with ‖w‖²/(2δ),
its Moreau envelope: the conjugate gains the term δ‖z‖²/2.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attsvm._utils.powers import Functions, power, signed_power


class Link(NamedTuple):
    """The exponent p of the potential, and δ."""

    p: float
    linear: float = 0.0

    @property
    def exponent(self) -> float:
        """1/(p−1)."""
        return 1.0 / (self.p - 1.0)

    @property
    def is_identity(self) -> bool:
        return self.p == 2.0 and not self.linear

    def weights(self, mirror: Tensor, functions: Functions) -> Tensor:
        """The weights of mirror variables; for the identity the same tensor."""
        linked: Tensor = signed_power(mirror, self.exponent, functions)
        return linked + self.linear * mirror if self.linear else linked

    def mirror(self, weights: Tensor, functions: Functions) -> Tensor:
        """The mirror variables of weights; for the identity the same tensor."""
        if not self.linear:
            found: Tensor = signed_power(weights, self.p - 1.0, functions)
            return found
        size, e = weights.abs().double(), self.exponent
        # z^e + δz is convex for e > 1, and at most 2w at this start: Newton's method falls to the root from above
        z = torch.minimum(power(size, self.p - 1.0, functions), size / self.linear)
        for _ in range(8):
            slope = e * z ** (e - 1.0) + self.linear
            z = z - (z**e + self.linear * z - size) / slope
        return torch.copysign(z.clamp(min=0.0), weights).to(weights.dtype)

    def slope(self, size: float) -> float:
        """dw/dz at weights of a size."""
        if not self.linear:
            return float(size ** (2.0 - self.p) / (self.p - 1.0))
        z = float(
            self.mirror(torch.tensor(size, dtype=torch.float64), Functions(torch.sqrt, torch.copysign, torch.pow))
        )
        return float(self.exponent * z ** (self.exponent - 1.0) + self.linear)

    def shrunk(self, mirror: Tensor, factor: Tensor, functions: Functions) -> Tensor:
        """The mirror variables of factor times the weights, up to (1 − factor)²; δ > 0."""
        # one step of Newton's method, z − (1 − factor)·φ(z)/φ′(z)
        steep = power(mirror.abs(), self.exponent - 1.0, functions)
        ratio = (steep + self.linear) / (self.exponent * steep + self.linear)
        shrunk: Tensor = mirror * (1.0 - (1.0 - factor) * ratio)
        return shrunk
