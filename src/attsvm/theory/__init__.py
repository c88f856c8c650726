"""What theory says of a run: the direction it goes to, the kind of its convergence, when it must be the best one.

One idea a file: ``prediction`` names the Att-SVM of a run, ``kinds`` classifies where it ended, ``conditions`` says when
the end is the global one, and when a selection is feasible at all, ``rates`` measures how fast it came.
"""

from attsvm.theory.kinds import Classification, classify

__all__ = ["Classification", "classify"]
