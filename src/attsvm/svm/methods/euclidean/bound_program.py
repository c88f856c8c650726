"""Large quadratic programs under bounds, min ½μ'Kμ − h'μ over μ ≥ 0, by products with K alone.

Accelerated projected gradient with restarts finds which bounds hold; conjugate gradients on the others then give the
digits. The two alternate: the gradient's turn lasts while it still exchanges many bounds, that of conjugate gradients
while they stay within the bounds and have more to gain than the bounds outside of them; where they leave the bounds,
the way there is projected and shortened until it gains.
"""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Vector = Float[np.ndarray, "*shape"]
Product = Callable[[Vector], Vector]
Check = Callable[[int, Vector, Vector], bool]

BLOCK = 10
"""Gradient steps between two looks at the exchanges."""

FEW_EXCHANGES = 0.1
"""Part of the positive entries that a block may exchange for conjugate gradients to take over."""

LONGEST_OUTSIDE = 20
"""Conjugate gradient steps that may be taken outside of the bounds."""

REDUCTION = 0.1
"""Of the residual on a face, after which a way that left the bounds is projected."""

SHORTEST = 2.0**-5
"""Of a projected way, as a part of it; where that does not gain, the gradient's turns are doubled."""

LONGEST_TURN = 64
"""Blocks of gradient steps between two attempts at conjugate gradients."""

REFINEMENTS = 3
"""Times that a point may turn out, its image computed afresh, not to be what it seemed."""

CHECK = 5
"""Conjugate gradient steps between two looks at the answer."""

STEP_SAFETY = 1.05
"""The largest eigenvalue is known from below: by about this."""


class Stopped(Exception):
    """No error: ends the search from inside of it, whichever loop it is in."""


class BoundProgram:
    """min ½μ'Kμ − h'μ over μ_i ≥ 0 on the bounded entries.

    Parameters
    ----------
    times : callable
        μ to Kμ, K symmetric and positive semidefinite.
    linear : ndarray
        h.
    bounded, there : bool ndarrays of its shape
        Entries that must not be negative; entries that are there at all: the others stay 0.
    eigenvalue : float
        About the largest of K.
    check : callable
        Called now and then with (steps, μ, Kμ); True where μ will do. May raise :class:`Stopped`.
    limit : int
        Products with K, at most.

    References
    ----------
    Moré and Toraldo (1991), *On the solution of large quadratic programming problems with bound constraints*;
    O'Donoghue and Candès (2015), *Adaptive restart for accelerated gradient schemes*; Dostál and Schöberl (2005),
    *Minimizing quadratic functions subject to bound constraints with the rate of convergence and finite termination*,
    for when to leave a face.
    """

    def __init__(
        self,
        times: Product,
        linear: Vector,
        bounded: Bool[np.ndarray, "*shape"],
        there: Bool[np.ndarray, "*shape"],
        eigenvalue: float,
        check: Check,
        limit: int,
    ) -> None:
        self._product, self.linear, self.bounded, self.there = times, linear, bounded, there
        self.eigenvalue = STEP_SAFETY * eigenvalue
        self.check, self.limit = check, limit
        self.steps = 0
        self.turn = 1
        self.all_bounded = bool((bounded == there).all())

    def solve(self, start: Vector, face_first: bool = False) -> tuple[Vector, Vector]:
        """From a feasible ``start`` until ``check`` is content or the search is stopped: the last μ, and Kμ.

        Parameters
        ----------
        start : ndarray
        face_first : bool
            Begin with conjugate gradients: the positive entries of ``start`` are believed to be the right ones.
        """
        self.point, self.image = start, np.zeros(start.shape)
        refinements = 0
        try:
            self.image = self.times(start)
            while refinements < REFINEMENTS:
                if not face_first:
                    self._gradient_steps()
                face_first = False
                if self._face_steps():
                    self.image = self.times(self.point)  # what was carried along has drifted
                    if self.check(self.steps, self.point, self.image):
                        break
                    refinements += 1
        except Stopped:
            pass
        return self.point, self.image

    def times(self, vector: Vector) -> Vector:
        """K times a vector, counted."""
        if self.steps >= self.limit:
            raise Stopped
        self.steps += 1
        return self._product(vector)

    def _objective(self, point: Vector, image: Vector) -> float:
        return float(0.5 * np.vdot(point, image) - np.vdot(point, self.linear))

    def _clipped(self, point: Vector) -> Vector:
        """The nearest feasible point, in place."""
        return np.asarray(np.maximum(point, 0.0, out=point, where=True if self.all_bounded else self.bounded))

    def _inside(self) -> Bool[np.ndarray, "*shape"]:
        """Entries that no bound holds."""
        return self.point > 0 if self.all_bounded else (self.point > 0) | (self.there & ~self.bounded)

    def _gradient_steps(self) -> None:
        """Accelerated projected gradient until a block of steps exchanges few bounds."""
        point = first = self.point
        image = self.image = self.times(point)
        ahead, image_ahead, momentum = point, image, 1.0
        objective = self._objective(point, image)
        positive = point > 0
        for block in itertools.count(1):
            for _ in range(BLOCK):
                point = ahead - (image_ahead - self.linear) / self.eigenvalue
                point = self._clipped(np.multiply(point, self.there, out=point))
                image = self.times(point)
                change = point - self.point
                if np.vdot(ahead - point, change) > 0:
                    momentum = 1.0
                following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
                factor = (momentum - 1) / following
                momentum = following
                ahead, image_ahead = point + factor * change, image + factor * (image - self.image)
                self.point, self.image = point, image
            reached = self._objective(point, image)
            if not reached <= objective + 1e-12 * abs(objective):  # the steps were too long
                self.eigenvalue *= 2
                self.point = ahead = first
                self.image = image_ahead = self.times(first)
                momentum = 1.0
                continue
            objective, first = reached, point
            self.check(self.steps, point, image)
            before, positive = positive, point > 0
            few = np.count_nonzero(before != positive) <= FEW_EXCHANGES * np.count_nonzero(positive)
            if few and block >= self.turn:
                return

    def _face_steps(self) -> bool:
        """Conjugate gradients on the entries that no bound holds; whether ``check`` was content."""
        inside = self._inside()
        point, image = self.point, self.image
        residual = np.where(inside, self.linear - image, 0.0)
        direction = residual
        square = first = float(np.vdot(residual, residual))
        outside = False
        count = 0
        while square > 0:
            count += 1
            turned = self.times(direction)
            curvature = float(np.vdot(direction, turned))
            # without curvature the objective falls for ever: a step as long as can be tells the check
            least = 1e-15 * self.eigenvalue * float(np.vdot(direction, direction))
            length = square / max(curvature, least)
            point, image = point + length * direction, image + length * turned
            residual = np.where(inside, self.linear - image, 0.0)
            previous, square = square, float(np.vdot(residual, residual))
            direction = residual + square / previous * direction
            outside = bool((point < 0).any(where=self.bounded))
            if outside:
                if square <= REDUCTION**2 * first or count >= LONGEST_OUTSIDE:
                    break
                continue
            if count % CHECK == 0 or square <= REDUCTION**2 * first:
                self.point, self.image = point, image
                if count % CHECK == 0 and self.check(self.steps, point, image):
                    return True
                held = np.minimum(image - self.linear, 0.0, where=self.there & ~inside, out=np.zeros(point.shape))
                if float(np.vdot(held, held)) > square:
                    return False
        if outside:
            self._project(point)
            return False
        self.point, self.image = point, image
        return self.check(self.steps, point, image)

    def _project(self, goal: Vector) -> None:
        """As far towards the goal, projected on the bounds, as the objective falls."""
        objective, way, length = self._objective(self.point, self.image), goal - self.point, 1.0
        while length >= SHORTEST:
            point = self._clipped(self.point + length * way)
            image = self.times(point)
            if self._objective(point, image) < objective:
                self.point, self.image = point, image
                self.turn = max(1, self.turn // 2)
                return
            length /= 2
        self.turn = min(2 * self.turn, LONGEST_TURN)
