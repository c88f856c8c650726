"""Ridge regression on labels ±1, with the strength of the penalty that predicts left-out groups best."""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Float, Int

STRENGTHS = 10.0 ** np.arange(3, -4.5, -0.5)
"""Strengths λ that are tried, for features whose centred rows have a mean square of 1."""

MOST_STEPS, CLOSE = 50, 1e-9
"""Most Newton steps for one strength, and the change of the residuals at which they end."""


@dataclass(frozen=True)
class Ridge:
    """f = (features - means) @ coefficients + level = features @ coefficients + intercept."""

    coefficients: Float[np.ndarray, "m C"]
    intercept: Float[np.ndarray, " C"]
    means: Float[np.ndarray, " m"]
    strength: float
    left_out: Float[np.ndarray, "n C"]  # predictions of each sequence by the fit without its group


def fit_ridge(
    features: Float[np.ndarray, "n m"],
    targets: Float[np.ndarray, "n C"],
    weights: Float[np.ndarray, " n"],
    groups: Int[np.ndarray, " n"],
    *,
    nonnegative: bool = False,
) -> Ridge:
    """Minimise Σ_i w_i (y_i − f_i)² + λ‖β‖² for the λ of the smallest logistic loss on left-out groups.

    The predictions without a group follow from the fit to all sequences: with residuals r and their linear map M from
    the targets, the residuals of a left-out group g are M_gg⁻¹ r_g. With ``nonnegative`` coefficients this keeps the
    coefficients that are zero at zero, an approximation.

    ``targets``: ±1. ``weights``: positive, with mean 1. ``groups``: numbers from 0.
    """
    root = np.sqrt(weights)[:, None]
    mean, level = (np.average(values, axis=0, weights=weights) for values in (features, targets))
    centred, aims = root * (features - mean), root * (targets - level)
    size = np.sqrt((centred**2).sum() / len(centred)) or 1.0
    centred /= size
    best: tuple[float, Ridge] | None = None
    residuals = aims
    gram = None if nonnegative else centred @ centred.T
    for strength in STRENGTHS:
        if gram is None:
            residuals, maps = _nonnegative(centred, aims, residuals, strength)
        else:
            inverse = np.linalg.inv(np.eye(len(aims)) + gram / strength)
            residuals, maps = inverse @ aims, [inverse] * aims.shape[1]
        predicted = targets - _left_out(residuals, maps, root, groups) / root
        # a regression on labels ±1 estimates 2P − 1, whose log odds are about twice as large
        loss = float((weights[:, None] * np.logaddexp(0.0, -2.0 * targets * predicted)).mean())
        if best is None or loss < best[0]:
            slopes = centred.T @ residuals / strength
            slopes = (np.maximum(slopes, 0.0) if nonnegative else slopes) / size
            best = loss, Ridge(slopes, level - mean @ slopes, mean, float(strength), predicted)
    assert best is not None
    return best[1]


def _left_out(
    residuals: np.ndarray, maps: list[np.ndarray], root: np.ndarray, groups: np.ndarray
) -> Float[np.ndarray, "n C"]:
    """The residuals of each group for the fit without it; ``maps``: of each output, from targets to residuals."""
    # the intercept, which is not penalised, is the projection on the roots of the weights
    level = root / np.linalg.norm(root)
    if len(groups) == groups.max() + 1:  # a group is one sequence
        alone = np.column_stack([inverse.diagonal() for inverse in maps]) - level**2
        return np.asarray(np.divide(residuals, alone, out=np.zeros_like(residuals), where=alone > 1e-10))
    found = np.empty_like(residuals)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    for column, inverse in enumerate(maps):
        for own in members:
            block = inverse[np.ix_(own, own)] - level[own] * level[own].T
            found[own, column] = np.linalg.lstsq(block, residuals[own, column], rcond=1e-10)[0]
    return found


def _nonnegative(
    features: np.ndarray, targets: np.ndarray, start: np.ndarray, strength: float
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Residuals a of non-negative coefficients β = max(F'a, 0)/λ, and their maps for the positive ones.

    They maximise the concave dual y'a − ‖a‖²/2 − ‖max(F'a, 0)‖²/2λ; a Newton step solves the problem of the
    coefficients that are positive, and is halved until the dual rises.
    """
    residuals, maps = np.empty_like(targets), []
    for column, y in enumerate(targets.T):

        def dual(a: np.ndarray, y: np.ndarray = y) -> float:
            positive = np.maximum(features.T @ a, 0.0)
            return float(y @ a - 0.5 * a @ a - 0.5 * positive @ positive / strength)

        a = start[:, column]
        for _ in range(MOST_STEPS):
            active = features[:, features.T @ a > 0]
            inverse = np.linalg.inv(np.eye(len(y)) + active @ active.T / strength)
            step, part, value = inverse @ y - a, 1.0, dual(a)
            if np.abs(step).max() <= CLOSE:
                break
            while part > 1e-6 and dual(a + part * step) < value:
                part /= 2
            a = a + part * step
        residuals[:, column] = a
        maps.append(inverse)
    return residuals, maps
