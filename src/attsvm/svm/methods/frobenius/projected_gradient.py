"""Large quadratic programs under bounds: projected gradient steps and conjugate gradients alternate.

The program is min ½μ'Kμ − h'μ over 0 ≤ μ ≤ C, by products with K alone. The dual of a Frobenius Att-SVM has the Gram
matrix K of its unit rows, h the right sides, and no upper bound. With slack variables the upper bound of a row is C
times its norm. Multipliers of equalities are free.

Accelerated projected gradient with restarts determines which bounds are active; it runs while a block of steps still
exchanges many bounds. Conjugate gradients on the free entries then converge to high accuracy. They run while the
entries stay within the bounds and the residual on the free entries is larger than that of the active bounds. If they
leave the bounds, the step is projected and shortened until the objective decreases.
"""

from collections.abc import Callable, Iterator

import numpy as np

from attsvm._utils.shapes import Bool, Float

Vector = Float[np.ndarray, "*shape"]
Mask = Bool[np.ndarray, "*shape"]
Product = Callable[[Vector], Vector]
Points = Iterator[tuple[Vector, Vector]]
"""The points μ of a method one after the other, and Kμ."""

BLOCK, FACE_BLOCK = 10, 5
"""Gradient steps, and conjugate gradient steps, between two points that are evaluated."""

LONGEST_OUTSIDE = 20
"""Largest number of conjugate gradient steps outside of the bounds."""

REDUCTION = 0.1
"""A step that left the bounds is projected once the residual on the face has been reduced by this factor."""

STEP_SAFETY = 1.05
"""The estimate of the largest eigenvalue, a lower bound, is multiplied by this."""

FEW, FEWEST = 0.1, 20
"""At most this share of the positive entries, but at least so many of them, are a small exchange."""


class Stopped(Exception):
    """Ends a method that has made all products that it may make. It is not an error."""


class BoundedProgram:
    """min ½μ'Kμ − h'μ over 0 ≤ μ ≤ C, and the number of products with K.

    ``product``: maps μ to Kμ, where K is symmetric and positive semidefinite. ``linear``: h. ``bounded``, ``there``:
    entries that must not be negative, and entries that exist; all other entries stay 0. ``limit``: largest number of
    products with K. ``upper``: C, one for each entry; None for ∞.
    """

    def __init__(
        self,
        product: Product,
        linear: Vector,
        bounded: Mask,
        there: Mask,
        limit: int,
        upper: Vector | None = None,
    ) -> None:
        self._product, self.linear, self.bounded, self.there = product, linear, bounded, there
        self.limit, self.upper = limit, upper
        self.steps = 0
        self.all_bounded = bool((bounded == there).all())

    def times(self, vector: Vector) -> Vector:
        """Multiply by K. Raises :class:`Stopped` if the number of products is at its limit."""
        if self.steps >= self.limit:
            raise Stopped
        self.steps += 1
        return self._product(vector)

    def objective(self, point: Vector, image: Vector) -> float:
        """Compute ½μ'Kμ − h'μ."""
        return float(0.5 * np.vdot(point, image) - np.vdot(point, self.linear))

    def clip(self, point: Vector) -> Vector:
        """Project a point on the bounds, in place."""
        np.maximum(point, 0.0, out=point, where=True if self.all_bounded else self.bounded)
        if self.upper is not None:
            np.minimum(point, self.upper, out=point, where=self.bounded)
        return point


class ProjectedGradient:
    """The two methods on one program. ``eigenvalue``: an estimate of the largest eigenvalue of K.

    References: Moré and Toraldo (1991), *On the solution of large quadratic programming problems with bound
    constraints*; O'Donoghue and Candès (2015), *Adaptive restart for accelerated gradient schemes*; Dostál and Schöberl
    (2005), *Minimizing quadratic functions subject to bound constraints with the rate of convergence and finite
    termination*, for when to leave a face.
    """

    def __init__(self, program: BoundedProgram, eigenvalue: float) -> None:
        self.program, self.eigenvalue = program, STEP_SAFETY * eigenvalue

    def points(self, start: Vector, face_first: bool = False, gradient_alone: bool = False) -> Points:
        """Yield the points from a feasible ``start`` on.

        ``face_first``: begin with conjugate gradients, because the positive entries of ``start`` are probably those of
        the optimum. ``gradient_alone``: make no conjugate gradient steps.
        """
        self.point = start
        if face_first:
            self.image = self.program.times(start)
            yield from self._face_steps()
        while True:
            yield from self._gradient_steps(gradient_alone)
            yield from self._face_steps()

    def _gradient_steps(self, alone: bool) -> Points:
        """Make accelerated projected gradient steps until a block of steps exchanges few bounds, or without end."""
        program = self.program
        point = first = self.point
        image = self.image = program.times(point)
        ahead, image_ahead, momentum = point, image, 1.0
        objective = program.objective(point, image)
        positive = point > 0
        while True:
            for _ in range(BLOCK):
                # μ⁺ = P(ν − (Kν − h)/L) from the extrapolated point ν, P the projection on the bounds
                point = ahead - (image_ahead - program.linear) / self.eigenvalue
                point = program.clip(np.multiply(point, program.there, out=point))
                image = program.times(point)
                change = point - self.point
                # restart where the step ν − μ⁺, which is along the gradient, opposes the momentum
                if np.vdot(ahead - point, change) > 0:
                    momentum = 1.0
                following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
                factor = (momentum - 1) / following
                momentum = following
                ahead, image_ahead = point + factor * change, image + factor * (image - self.image)
                self.point, self.image = point, image
            reached = program.objective(point, image)
            if not reached <= objective + 1e-12 * abs(objective):  # the steps were too long
                self.eigenvalue *= 2
                self.point = ahead = first
                self.image = image_ahead = program.times(first)
                momentum = 1.0
                continue
            objective, first = reached, point
            yield point, image
            before, positive = positive, point > 0
            if not alone and np.count_nonzero(before != positive) <= FEW * np.count_nonzero(positive):
                return

    def _face_steps(self) -> Points:
        """Solve by conjugate gradients K_FF μ_F = h_F − K_FA μ_A on the free entries F."""
        program = self.program
        inside = self._inside()
        point, image = self.point, self.image
        residual = np.where(inside, program.linear - image, 0.0)
        direction = residual
        square = first = float(np.vdot(residual, residual))
        outside = False
        count = 0
        while square > 0:
            count += 1
            turned = program.times(direction)
            curvature = float(np.vdot(direction, turned))
            # without curvature the objective is unbounded below; a very long step makes this visible to the check
            least = 1e-15 * self.eigenvalue * float(np.vdot(direction, direction))
            length = square / max(curvature, least)
            point, image = point + length * direction, image + length * turned
            residual = np.where(inside, program.linear - image, 0.0)
            previous, square = square, float(np.vdot(residual, residual))
            direction = residual + square / previous * direction
            outside = self._is_outside(point)
            if outside:
                if square <= REDUCTION**2 * first or count >= LONGEST_OUTSIDE:
                    break
                continue
            if count % FACE_BLOCK == 0 or square <= REDUCTION**2 * first:
                self.point, self.image = point, image
                if count % FACE_BLOCK == 0:
                    yield point, image
                # leave the face where the gradient of the active bounds points inside by more than that of the face
                if self._pull_of_bounds(point, image, inside) > square:
                    return
        if outside:
            self._project(point)
            return
        self.point, self.image = point, program.times(point)  # the updated image has accumulated rounding errors
        yield self.point, self.image

    def _inside(self) -> Mask:
        """Find the free entries, which are at no bound."""
        program = self.program
        inside = self.point > 0
        if not program.all_bounded:
            inside |= program.there & ~program.bounded
        return inside if program.upper is None else inside & ((self.point < program.upper) | ~program.bounded)

    def _is_outside(self, point: Vector) -> bool:
        program = self.program
        if (point < 0).any(where=program.bounded):
            return True
        return program.upper is not None and bool((point > program.upper).any(where=program.bounded))

    def _pull_of_bounds(self, point: Vector, image: Vector, inside: Mask) -> float:
        """Compute the squared length of the gradient on the active bounds, as far as it points inside."""
        program = self.program
        gradient, active = image - program.linear, program.there & ~inside
        if program.upper is not None:
            np.negative(gradient, out=gradient, where=point >= program.upper)
        held = np.minimum(gradient, 0.0, where=active, out=np.zeros(point.shape))
        return float(np.vdot(held, held))

    def _project(self, goal: Vector) -> None:
        """Step towards the goal, projected on the bounds, and halve the step until the objective decreases."""
        program = self.program
        objective, way, length = program.objective(self.point, self.image), goal - self.point, 1.0
        while length >= 2.0**-5:
            point = program.clip(self.point + length * way)
            image = program.times(point)
            if program.objective(point, image) < objective:
                self.point, self.image = point, image
                return
            length /= 2
