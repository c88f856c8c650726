"""A multiple of a norm, whose Att-SVM is that of the norm."""

from collections.abc import Sequence
from dataclasses import replace

from attsvm.norms import Norm, Scaled
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.registry import find_candidate, solver, solver_of


@solver(Scaled, methods=lambda norm: _methods_of_part(norm))
def solve_scaled(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least c N(W): the candidate for N."""
    assert isinstance(norm, Scaled)  # what it is registered for
    found = find_candidate(constraints, norm.of, settings, method)
    return found._replace(norm=None if found.norm is None else replace(norm, of=found.norm))


def _methods_of_part(norm: Norm) -> Sequence[str]:
    (part,) = norm.parts
    return solver_of(part).methods(part)
