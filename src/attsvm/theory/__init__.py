"""What theory says about a run: the direction it converges to, the kind of its limit, and when the limit is global.

``prediction`` returns the Att-SVM of a run; ``trained`` is its part in the parameters that it trained, and ``limits``
has the limits that are not the Att-SVM of the selected tokens. ``hypotheses`` checks the theorems on a run, and
``standing`` looks up what was measured. ``kinds`` classifies the selection at its end. ``global_conditions``,
``local_conditions``, ``joint``, ``landscape`` and ``mixtures`` check the hypotheses of the theorems; each returns the
``conditions`` with their numbers, of which feasibility is the first. ``rates`` measures how fast a run converged, with
the ``laws`` of convergence. ``ratios`` compares the margin of weights, or of factors of a given size, with the best
one, and ``kkt`` says whether factors are a KKT point. ``constrained`` computes where training with decoupled weight
decay ends; ``context`` is what a decay allows. ``mini_batches`` has the limit of
steps that are normalised by their own mini-batch.
"""

from attsvm.theory.conditions import Conditions, Hypothesis, feasibility
from attsvm.theory.constrained import ConstrainedLimit, constrained_limit
from attsvm.theory.context import ContextLimit, adam_steps, context_limit
from attsvm.theory.earliest_selection import EarliestSelection, earliest_selection
from attsvm.theory.global_conditions import global_convergence_conditions
from attsvm.theory.joint import joint_conditions
from attsvm.theory.kinds import Classification, Kind, classify
from attsvm.theory.kkt import kkt_ratio
from attsvm.theory.landscape import landscape_conditions
from attsvm.theory.laws import Law, Rate, Rates, compare_laws, convergence_rate
from attsvm.theory.local_conditions import local_convergence_conditions
from attsvm.theory.mini_batches import MiniBatchDirection, mini_batch_direction
from attsvm.theory.mixtures import mixture_conditions
from attsvm.theory.prediction import Prediction, predict_direction
from attsvm.theory.rates import mirror_descent_bound, observed_rates
from attsvm.theory.ratios import factor_ratio, margin_ratio
from attsvm.theory.smoothness import lipschitz_constant
from attsvm.theory.standing import Standing

__all__ = [
    "Classification",
    "Conditions",
    "ConstrainedLimit",
    "ContextLimit",
    "EarliestSelection",
    "Hypothesis",
    "Kind",
    "Law",
    "MiniBatchDirection",
    "Prediction",
    "Rate",
    "Rates",
    "Standing",
    "adam_steps",
    "classify",
    "compare_laws",
    "constrained_limit",
    "context_limit",
    "convergence_rate",
    "earliest_selection",
    "factor_ratio",
    "feasibility",
    "global_convergence_conditions",
    "joint_conditions",
    "kkt_ratio",
    "landscape_conditions",
    "lipschitz_constant",
    "local_convergence_conditions",
    "margin_ratio",
    "mini_batch_direction",
    "mirror_descent_bound",
    "mixture_conditions",
    "observed_rates",
    "predict_direction",
]


def __dir__() -> list[str]:
    return sorted(__all__)
