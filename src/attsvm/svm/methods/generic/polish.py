r"""Newton's method on the optimality conditions of a small problem, in the weights and the multipliers together.

The optimum satisfies W = prox of σN at W + σA*(λ) for every σ, A(W) = b where λ > 0, and λ = 0 elsewhere. Proximal
points approach it slowly where N(W) hardly grows, and their weights have the rounding errors of σA*(λ), which grow with
σ. These equations have neither fault, but their matrix has a row for each entry of W.
"""

import numpy as np

from attsvm.svm.loop import Report
from attsvm.svm.methods.generic.program import Bounds, Program

MOST_UNKNOWNS = 400
"""The matrix has this many rows or fewer."""

MAX_STEPS = 12

PATIENCE = 3
"""The steps end when this many have not halved the gap."""

DIFFERENCE = 1e-5
"""Length of a difference to each side, relative to the argument of the prox."""

DEPENDENT = 1e-9
"""Singular values below this, relative to the largest, are left out: there may be several optima."""


def polish(program: Program, bounds: Bounds, target: float, max_steps: int, report: Report) -> int:
    """Improve the bounds until their gap is at most ``target``; the number of steps, 0 for larger problems.

    ``bounds``: their weights and multipliers are the initial point. It has to be close to the optimum. ``report``:
    called as ``report(step, gap)``; a true return value ends the iteration.
    """
    weights, multipliers = bounds.weights, bounds.multipliers
    if weights.size + len(multipliers) > MOST_UNKNOWNS:
        return 0
    sigma = float(np.linalg.norm(weights) / (np.linalg.norm(program.adjoint(multipliers)) or 1.0))
    units = np.eye(weights.size).reshape(-1, *weights.shape)
    step, halved_at, halved = 0, 0, bounds.gap
    while bounds.gap > target and step < min(max_steps, MAX_STEPS) and step - halved_at < PATIENCE:
        short = program.right - program.apply(weights)
        ratio = multipliers.max() / program.right.max()
        active = np.flatnonzero(program.equality | (multipliers + ratio * short > 0))
        argument = weights + sigma * program.adjoint(multipliers)
        length = DIFFERENCE * float(np.linalg.norm(argument))
        ahead, behind = (program.norm.proxes(argument + side * length * units, sigma) for side in (1, -1))
        slope = (ahead - behind).reshape(len(units), -1).T / (2 * length)
        rows = program.row_matrices(active).reshape(len(active), -1)
        matrix = np.block([[np.eye(len(units)) - slope, -sigma * slope @ rows.T], [rows, np.zeros((len(active),) * 2)]])
        # the multipliers of rows that are not active become 0, which changes the argument
        dropped = np.zeros(len(multipliers))
        dropped[active] = multipliers[active]
        change = sigma * program.adjoint(dropped - multipliers).ravel()
        away = (program.norm.prox(argument, sigma) - weights).ravel() + slope @ change
        try:
            found = np.linalg.lstsq(matrix, np.concatenate([away, short[active]]), rcond=DEPENDENT)[0]
        except np.linalg.LinAlgError:  # the prox may be that of a user
            break
        weights = weights + found[: len(units)].reshape(weights.shape)
        dropped[active] += found[len(units) :]
        multipliers, step = dropped, step + 1
        gap = bounds.see(weights, multipliers)
        if gap <= 0.5 * halved:
            halved_at, halved = step, gap
        if report(step, gap):
            break
    return step
