"""Types of arrays with their shapes, as ``Float[jax.Array, "n d"]``; to a type checker each is its first argument.

The words of a shape name its axes and repeat within a signature, as in jaxtyping; ``Shaped`` has any entries.
"""

from typing import Annotated as Bool
from typing import Annotated as Complex
from typing import Annotated as Float
from typing import Annotated as Int
from typing import Annotated as Shaped
from typing import Annotated as UInt8

__all__ = ["Bool", "Complex", "Float", "Int", "Shaped", "UInt8"]
