"""Large quadratic programs under bounds, min ½μ'Kμ − h'μ over μ ≥ 0, by products with K alone.

Two methods alternate. Accelerated projected gradient with restarts determines which bounds are active; it runs while a
block of steps still exchanges many bounds. Conjugate gradients on the free entries then converge to high accuracy; they
run while the entries stay within the bounds and the residual on the free entries is larger than that of the active
bounds. If they leave the bounds, the step is projected and shortened until the objective decreases.
"""

import itertools
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Vector = Float[np.ndarray, "*shape"]
Product = Callable[[Vector], Vector]
Check = Callable[[int, Vector, Vector], bool]

BLOCK = 10
"""Number of gradient steps in a block; the exchanged bounds are counted after each block."""

FEW_EXCHANGES = 0.1
"""Conjugate gradients take over when a block exchanges at most this share of the positive entries."""

LONGEST_OUTSIDE = 20
"""Largest number of conjugate gradient steps if they leave the bounds."""

REDUCTION = 0.1
"""A step that left the bounds is projected once the residual on the face has been reduced by this factor."""

SHORTEST = 2.0**-5
"""Shortest fraction of a projected step. If it does not decrease the objective, more gradient steps are made next."""

LONGEST_TURN = 64
"""Blocks of gradient steps between two attempts at conjugate gradients."""

REFINEMENTS = 3
"""How many times a point may fail the check after its image has been recomputed."""

CHECK = 5
"""Conjugate gradient steps between two checks."""

STEP_SAFETY = 1.05
"""The estimate of the largest eigenvalue, a lower bound, is multiplied by this."""


class Stopped(Exception):
    """Ends the search from inside any of its loops. It is not an error."""


class BoundProgram:
    """min ½μ'Kμ − h'μ over μ_i ≥ 0 on the bounded entries.

    ``times``: maps μ to Kμ, where K is symmetric and positive semidefinite. ``linear``: h. ``bounded``, ``there``:
    entries that must not be negative, and entries that exist; all other entries stay 0. ``eigenvalue``: an estimate of
    the largest eigenvalue of K. ``check``: called regularly with (steps, μ, Kμ); returns True if μ is accurate enough.
    It may raise :class:`Stopped`. ``limit``: largest number of products with K.

    References: Moré and Toraldo (1991), *On the solution of large quadratic programming problems with bound
    constraints*; O'Donoghue and Candès (2015), *Adaptive restart for accelerated gradient schemes*; Dostál and Schöberl
    (2005), *Minimizing quadratic functions subject to bound constraints with the rate of convergence and finite
    termination*, for when to leave a face.
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
        """Iterate from a feasible ``start`` until ``check`` returns True or the search is stopped; return μ and Kμ.

        ``face_first``: begin with conjugate gradients, because the positive entries of ``start`` are probably those of
        the optimum.
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
                    self.image = self.times(self.point)  # the updated image has accumulated rounding errors
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
        """The free entries, which are at no bound."""
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
        """Conjugate gradients on the free entries. Returns the last result of ``check``."""
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
            # without curvature the objective is unbounded below; a very long step makes this visible to the check
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
        """Step towards the goal, projected on the bounds, and halve the step until the objective decreases."""
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
