from .causal import causal_problem as causal_problem
from .finite import FiniteMinimiser as FiniteMinimiser
from .graph import TokenGraph as TokenGraph
from .graph import token_graph as token_graph
from .of_problem import ProblemGraph as ProblemGraph
from .two_part import two_part_descent as two_part_descent
