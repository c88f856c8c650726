"""What theory says of a run: where it goes, of what kind its end is, and when that must be the best one.

One idea a file: ``prediction`` names the Att-SVM of a run, ``kinds`` classifies where it ended, ``conditions`` says
when a selection is feasible and when the end is the global one, ``rates`` measures how fast a run came.
"""

from attsvm.theory.conditions import Feasibility, GlobalConditions, feasibility, global_convergence_conditions
from attsvm.theory.kinds import Classification, classify
from attsvm.theory.margin_ratio import margin_ratio
from attsvm.theory.prediction import Prediction, predict_direction
from attsvm.theory.rates import Rate, convergence_rate, observed_rates

__all__ = [
    "Classification",
    "Feasibility",
    "GlobalConditions",
    "Prediction",
    "Rate",
    "classify",
    "convergence_rate",
    "feasibility",
    "global_convergence_conditions",
    "margin_ratio",
    "observed_rates",
    "predict_direction",
]
