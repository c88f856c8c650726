from .path import Layer as Layer
from .run import StackRun as StackRun
from .stack import Stack as Stack
