from .base import Head as Head
from .function import FunctionHead as FunctionHead
from .linear import Linear as Linear
from .mlp import MLP as MLP
from .quadratic import Quadratic as Quadratic
from .registry import HEADS as HEADS
from .registry import parse_head as parse_head
from .value_mlp import ValueMLP as ValueMLP
