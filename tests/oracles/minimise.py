"""Plain optimisers, which the library does not use."""

from scipy.optimize import minimize


def lowest_in_ball(loss, size, radius, starts, inside=()):
    """The least loss that SLSQP finds in a ball; its ends, which may lie outside by rounding, are scaled back.

    ``size`` is a norm of flat weights, and ``inside`` has functions that are to be at least 0.
    """
    bounds = [lambda w: radius - size(w), *inside]
    constraints = [{"type": "ineq", "fun": bound} for bound in bounds]
    options = {"maxiter": 200}
    found = [minimize(loss, x, constraints=constraints, method="SLSQP", options=options) for x in starts]
    return min(loss(end.x * min(1.0, radius / size(end.x))) for end in found)


def on_sphere(starts, size, radius):
    return [start * radius / size(start) for start in starts]
