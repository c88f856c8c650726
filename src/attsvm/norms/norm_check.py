"""Tests of a norm on random matrices: the axioms of a norm, its dual, its proximal map and its directions."""

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.norms.base import MissingPiece, Norm, parts_of, refuse_joint_parts

BOUND = 1e-9
"""Relative error of an inequality on which certificates rely."""

CLOSE = 1e-6
"""Relative error of an equality; the value of a norm may be an upper bound from a program."""

BY_DIFFERENCES = 1e-4
"""The length of differences, relative to the matrix, and the relative error of an equality with such a gradient."""


@dataclass(frozen=True)
class NormCheck:
    """The properties that :func:`check` tested and the norm fulfils.

    Attributes
    ----------
    norm : Norm
    errors : dict of str to float
        The largest relative error of each test.
    missing : tuple of str
        What the norm does not provide, so that it could not be tested.

    See Also
    --------
    attsvm.norms.check : Makes one.

    Examples
    --------
    >>> from attsvm.norms import Lp, check
    >>> found = check(Lp(3))
    >>> max(found.errors.values()) < 1e-6
    True
    """

    norm: Norm
    errors: dict[str, float]
    missing: tuple[str, ...]


class _Finding(NamedTuple):
    """An error that a test measured, how large it may be, and what it would mean."""

    piece: str
    test: str
    error: float
    allowed: float
    expected: str


class _Case(NamedTuple):
    """What is tested: the pieces that a norm provides; the others are None."""

    norm: Norm
    dual: Norm | None
    prox: Callable[[np.ndarray, float], np.ndarray] | None
    steepest: Callable[[Any], Any] | None
    samples: list[np.ndarray]
    axes: int


def check(norm: Norm, *, shape: tuple[int, ...] | None = None, jax: bool = True) -> NormCheck:
    """Test on random matrices whether the methods of a norm agree.

    Value: homogeneity, triangle inequality, positive except at 0, the same for several matrices at once, and the
    invariances and the Frobenius factor that it states. Dual: |⟨A, B⟩| ≤ N(A) N*(B), with equality at gradients of
    N and N* (by differences), at steepest directions and at proximal points. Proximal map: (x − w)/step is a
    subgradient of N at w, or w is a minimum where there is no dual. Steepest direction: N(D) ≤ 1 and ⟨g, D⟩ = N*(g),
    and the same in JAX as in NumPy.

    It is run once, without JAX, for a norm of another package when it is first solved or trained in; and with JAX when
    an optimiser first uses its steepest directions.

    Parameters
    ----------
    norm : Norm
    shape : tuple of int, optional
        Of the matrices; by default the norm's ``sample_shape``, or (4, 3).
    jax : bool
        Whether steepest directions are compared with those in JAX.

    Returns
    -------
    NormCheck

    Raises
    ------
    ProblemError
        If a test fails. The message names the piece, and by how much it is wrong.

    See Also
    --------
    attsvm.norms.Norm
    attsvm.norms.NormCheck : The result.

    Examples
    --------
    >>> from attsvm.norms import check, schatten
    >>> check(schatten(1.5)).missing
    ()
    """
    case = _case(norm, shape or tuple(norm.sample_shape))
    tests = [_values, _dual, _proximal_map, _steepest, *([_steepest_in_jax] if jax else [])]
    errors: dict[str, float] = {}
    with np.errstate(all="ignore"):
        for test in tests:
            for found in test(case):
                if not found.error <= found.allowed:
                    raise ProblemError(
                        f"norm: {norm.name}.{found.piece}: expected {found.expected}, got a relative error of "
                        f"{found.error:.1e}"
                    )
                errors[found.test] = max(errors.get(found.test, 0.0), found.error)
    pieces = {"dual": case.dual, "prox": case.prox, "steepest": case.steepest}
    return NormCheck(norm, errors, tuple(name for name, piece in pieces.items() if piece is None))


def checked(norm: Norm, jax: bool = False) -> Norm:
    """Return the norm, tested once if it or a part of it is defined outside this package.

    Raises ProblemError if a test of :func:`check` fails.
    """
    try:
        hash(norm)
    except TypeError:
        raise ProblemError(
            f"norm: expected a norm with equality and a hash, such as a frozen dataclass, got a {type(norm).__name__}"
        ) from None
    _checked_once(norm, jax)
    return norm


@lru_cache(maxsize=256)
def _checked_once(norm: Norm, jax: bool) -> None:
    if _is_outside(norm):
        refuse_joint_parts(norm)
        check(norm, jax=jax)


def _is_outside(norm: Norm) -> bool:
    return not type(norm).__module__.startswith("attsvm.") or any(map(_is_outside, parts_of(norm)))


def _case(norm: Norm, shape: tuple[int, ...]) -> _Case:
    generator = np.random.default_rng(0)
    dense = generator.standard_normal((3, *shape))
    single = np.zeros(shape)
    single.flat[1 % single.size] = -2.0
    sparse = dense[0] * (generator.random(shape) < 0.5) + single
    of_rank_one = np.outer(dense[1].flat[: shape[0]], dense[2].flat[: shape[-1]]) if len(shape) == 2 else dense[1]
    x, axes = dense[0], len(shape)

    def provided(piece: str, get: Callable[[], Any]) -> bool:
        """Return whether a norm has a piece; every error in it except that it is missing is an error of the norm."""
        try:
            found = get()
        except MissingPiece:
            return False
        except Exception as error:  # the code of a norm from outside may fail in any way
            raise ProblemError(
                f"norm: {norm.name}.{piece}: failed on an array of shape {shape}: {error!r}; a norm for some shapes "
                "only must give one of them as `sample_shape`"
            ) from error
        if piece in ("prox", "steepest") and np.shape(found) != shape:
            got = None if found is None else f"an array of shape {np.shape(found)}"
            raise ProblemError(f"norm: {norm.name}.{piece}: expected an array of shape {shape}, got {got}")
        return True

    provided("value", lambda: norm.values(x, axes))
    return _Case(
        norm,
        norm.dual if provided("dual", lambda: norm.dual.values(x, axes)) else None,
        norm.prox if provided("prox", lambda: norm.prox(x, 1.0)) else None,
        norm.steepest if provided("steepest", lambda: norm.steepest(x)) else None,
        [*dense[:2], single, sparse, of_rank_one],
        axes,
    )


def _values(case: _Case) -> Iterator[_Finding]:
    norm, samples = case.norm, np.stack(case.samples)
    sizes = np.array([_size(norm, x) for x in samples])
    yield _Finding("value", "finite", 0.0 if np.isfinite(sizes).all() else np.inf, 0, "one finite number")
    yield _Finding("value", "zero", abs(_size(norm, 0 * samples[0])), 0, "0 for an array of zeros")
    yield _Finding("value", "positive", float((sizes <= 0).any()), 0, "a positive number for an array that is not 0")
    together = np.asarray(norm.values(samples, case.axes))
    each = np.array([float(norm.value(x, case.axes)) for x in samples])
    error = _largest(abs(together - each) / sizes) if together.shape == sizes.shape else np.inf
    yield _Finding("values", "several at once", error, CLOSE, "the value of each array")
    for factor in (-1.0, 1e4):
        error = _largest(abs(norm.values(factor * samples, case.axes) / (abs(factor) * sizes) - 1))
        yield _Finding("value", "homogeneity", error, CLOSE, f"N({factor:g} W) = {abs(factor):g} N(W)")
    # the last pair are two halves of one array without common entries
    sums = [(samples[i] + samples[j], sizes[i] + sizes[j]) for i, j in combinations(range(len(samples)), 2)]
    half = samples[0] * (np.arange(samples[0].size).reshape(samples[0].shape) % 2)
    sums.append((samples[0], _size(norm, half) + _size(norm, samples[0] - half)))
    excess = _largest(norm.values(np.stack([x for x, _ in sums]), case.axes) / [most for _, most in sums] - 1)
    yield _Finding("value", "triangle inequality", excess, CLOSE, "N(A + B) <= N(A) + N(B)")
    if case.axes == 2:
        yield from _claims(case, sizes)


def _claims(case: _Case, sizes: np.ndarray) -> Iterator[_Finding]:
    """Test what a norm states about itself: its factor, its invariances, and the norm that it is on columns."""
    norm, samples = case.norm, case.samples
    x, n = samples[0], sizes[0]
    left, right = (np.linalg.qr(np.random.default_rng(1).standard_normal((k, k)))[0] for k in x.shape)
    if norm.left_invariant:
        yield _Finding("left_invariant", "invariance", abs(_size(norm, left @ x) / n - 1), CLOSE, "N(UW) = N(W)")
    if norm.right_invariant:
        yield _Finding("right_invariant", "invariance", abs(_size(norm, x @ right) / n - 1), CLOSE, "N(WV) = N(W)")
    factor = norm.frobenius_factor(samples[0].shape)
    excess = _largest(n / (factor * np.linalg.norm(x)) - 1 for x, n in zip(samples, sizes, strict=True))
    yield _Finding("frobenius_factor", "Frobenius factor", excess, BOUND, "N(X) <= c ‖X‖_F")
    if type(norm).of_vectors is not Norm.of_vectors:
        columns = [x[:, :1] for x in samples]
        error = _largest(abs(_size(norm.of_vectors, x[:, 0]) - _size(norm, x)) for x in columns)
        yield _Finding("of_vectors", "vectors", error, CLOSE, "the norm of a matrix with one column")


def _dual(case: _Case) -> Iterator[_Finding]:
    norm, dual, samples = case.norm, case.dual, case.samples
    if dual is None:
        return
    sizes, dual_sizes = (np.array([_size(each, x) for x in samples]) for each in (norm, dual))
    flat = np.reshape(samples, (len(samples), -1))
    excess = _largest(np.abs(flat @ flat.T) / np.outer(sizes, dual_sizes) - 1)
    yield _Finding("dual", "duality", excess, BOUND, "|⟨A, B⟩| <= N(A) N*(B)")
    # a gradient of N has N* = 1, and the other way round
    error = abs(_size(dual, _gradient(norm, samples[0])) - 1)
    yield _Finding("dual", "dual norm of a gradient", error, BY_DIFFERENCES, "N*(∇N(A)) = 1")
    error = abs(_size(norm, _gradient(dual, samples[0])) - 1)
    yield _Finding("dual", "norm of a gradient", error, BY_DIFFERENCES, "N(∇N*(B)) = 1, as N* is attained")


def _proximal_map(case: _Case) -> Iterator[_Finding]:
    norm, dual, prox = case.norm, case.dual, case.prox
    if prox is None:
        return
    for x in case.samples:
        for step in (0.1, 1.0):
            w = np.asarray(prox(x, step))
            value, length = _size(norm, w), float(np.vdot(x, x)) / step
            if dual is None:
                objective = value + float(np.vdot(w - x, w - x)) / (2 * step)
                others = [w + h * (y - w) for y in (*case.samples, 0 * x) for h in (1e-3, 1e-1, 1.0)]
                lower = (_size(norm, y) + (np.vdot(y - x, y - x) - np.vdot(y - w, y - w)) / (2 * step) for y in others)
                error = _largest((objective - each) / length for each in lower)
                yield _Finding("prox", "proximal map", error, CLOSE, "the minimiser of N(w) + ‖w - x‖²/(2 step)")
                continue
            subgradient = (x - w) / step
            yield _Finding("prox", "Moreau", _size(dual, subgradient) - 1, CLOSE, "N*((x - w)/step) <= 1")
            error = abs(value - float(np.vdot(subgradient, w))) / max(value, length)
            yield _Finding("prox", "Moreau", error, CLOSE, "⟨(x - w)/step, w⟩ = N(w) for w = prox(x, step)")
            # the projection on the dual ball is what remains of x at step 1
        error = float(np.linalg.norm(norm.project_dual_ball(x) + prox(x, 1.0) - x) / np.linalg.norm(x))
        yield _Finding("project_dual_ball", "Moreau", error, CLOSE, "x = prox(x, 1) + project_dual_ball(x)")
    several, step = np.stack(case.samples), 0.3
    error = _largest(abs(norm.proxes(several, step, case.axes) - [prox(x, step) for x in case.samples]))
    yield _Finding("proxes", "several at once", error, CLOSE, "the proximal point of each array")


def _steepest(case: _Case) -> Iterator[_Finding]:
    norm, dual, steepest = case.norm, case.dual, case.steepest
    if steepest is None:
        return
    for g in case.samples:
        D = np.asarray(steepest(g))
        product = float(np.vdot(g, D))
        yield _Finding("steepest", "steepest direction", _size(norm, D) - 1, CLOSE, "N(D) <= 1")
        best = max(float(np.vdot(g, x)) / _size(norm, x) for x in case.samples)
        yield _Finding("steepest", "steepest direction", best / product - 1, CLOSE, "the largest ⟨g, D⟩ over N(D) <= 1")
        if dual is not None:
            size = _size(dual, g)
            yield _Finding("dual", "duality", product / (_size(norm, D) * size) - 1, BOUND, "|⟨A, B⟩| <= N(A) N*(B)")
            yield _Finding("steepest", "steepest direction", 1 - product / size, CLOSE, "⟨g, D⟩ = N*(g)")
    still = float(np.abs(steepest(0 * case.samples[0])).max())
    yield _Finding("steepest", "steepest direction", still, 0, "0 for a gradient of zeros")


def _steepest_in_jax(case: _Case) -> Iterator[_Finding]:
    if case.steepest is None:
        return
    jax = importlib.import_module("jax")  # only here: solving and certifying need no JAX
    with jax.enable_x64():
        for g in case.samples[:2]:
            try:
                found = np.asarray(case.steepest(jax.numpy.asarray(g)))
            except Exception as error:  # the code of a norm from outside may fail in any way
                raise ProblemError(f"norm: {case.norm.name}.steepest: JAX cannot trace it: {reason(error)}") from error
            expected = np.asarray(case.steepest(g))
            difference = float(np.abs(found - expected).max() / np.abs(expected).max())
            yield _Finding("steepest", "NumPy and JAX", difference, CLOSE, "the same direction in JAX as in NumPy")


def _gradient(norm: Norm, x: np.ndarray) -> np.ndarray:
    """Return the gradient of N at x, by central differences."""
    step = BY_DIFFERENCES * float(np.abs(x).max())
    units = step * np.eye(x.size).reshape(-1, *x.shape)
    ahead, behind = (norm.values(x + sign * units, x.ndim) for sign in (1, -1))
    return np.reshape((ahead - behind) / (2 * step), x.shape)


def _size(norm: Norm, x: np.ndarray) -> float:
    return float(norm.values(x, x.ndim))


def _largest(errors: Any) -> float:
    """Return the largest of some numbers; ∞ if one is not a number."""
    largest = float(np.max(errors if isinstance(errors, np.ndarray) else list(errors)))
    return np.inf if np.isnan(largest) else largest
