from .fused import FusedHeads as FusedHeads
from .fused import FusedKeysQueries as FusedKeysQueries
from .gamma2 import Gamma2 as Gamma2
from .induced import induced_norm as induced_norm
from .nu import Nu as Nu
