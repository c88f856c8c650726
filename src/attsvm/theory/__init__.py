"""Predict the limit of a run: the direction it converges to, the kind of its limit, and when the limit is global.

``prediction`` returns the Att-SVM of a run; ``trained`` is its part in the parameters that it trained, and ``limits``
has the limits that are not the Att-SVM of the selected tokens. ``hypotheses`` checks the theorems on a run, and
``standing`` looks up what was measured. ``kinds`` classifies the selection at its end. ``global_conditions``,
``local_conditions``, ``joint``, ``landscape`` and ``mixtures`` check the hypotheses of the theorems; each returns the
``conditions`` with their numbers, of which feasibility is the first. ``rates`` measures how fast a run converged, with
the ``laws`` of convergence. ``ratios`` compares the margin of weights, or of factors of a given size, with the best
one, and ``kkt`` says whether factors are a KKT point. ``constrained`` computes where training with decoupled weight
decay ends; ``context`` is what a decay allows. ``mini_batches`` has the limit of steps that are normalised by their own
mini-batch. ``layers`` says how well the limit of several attention layers is known.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "CLEAR",
    "Found",
    "Row",
    "SATURATED",
    "TrainedModel",
    "divergence_of",
    "judge_layers",
    "largest_dropped",
    "norm_for",
    "norms_at_any_length",
    "table",
    "trained_part",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
