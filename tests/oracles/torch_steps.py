"""The optimisers' formulas, written once more in NumPy, and how an optimiser is held against them."""

import numpy as np
import torch

SHAPES = [(7, 5), (11,), (3, 4, 2), (1,), ()]
STEPS = 100


def signed_power(x, exponent):
    return np.sign(x) * np.abs(x) ** exponent


class Momentum:
    """What the gradients of a parameter group become before a step, in float64, with nothing of the package in it."""

    def __init__(self, weights, *, momentum=0.0, nesterov=False, maximize=False):
        self.buffers = [np.zeros_like(w) for w in weights]
        self.momentum, self.nesterov, self.maximize = momentum, nesterov, maximize

    def directions(self, gradients):
        gradients = [-g if self.maximize else g for g in gradients]
        self.buffers = [self.momentum * b + g for b, g in zip(self.buffers, gradients, strict=True)]
        if self.nesterov:
            return [g + self.momentum * b for b, g in zip(self.buffers, gradients, strict=True)]
        return self.buffers


class MirrorFormula(Momentum):
    """Mirror descent; gradients are divided by their norm if ``normalize``, by that of each parameter or of all."""

    def __init__(self, weights, *, lr, p, normalize=False, scope="each", weight_decay=0.0, **options):
        super().__init__(weights, **options)
        self.mirrors = [signed_power(w, p - 1) for w in weights]
        self.lr, self.p, self.normalize, self.scope, self.weight_decay = lr, p, normalize, scope, weight_decay

    def step(self, gradients):
        q, directions = self.p / (self.p - 1), self.directions(gradients)
        norms = [np.sum(np.abs(d) ** q) ** (1 / q) if self.normalize else 1.0 for d in directions]
        if self.normalize and self.scope == "all":
            norms = [np.sum(np.array(norms) ** q) ** (1 / q)] * len(norms)
        decay = (1 - self.lr * self.weight_decay) ** (self.p - 1)
        self.mirrors = [decay * z - self.lr * d / n for z, d, n in zip(self.mirrors, directions, norms, strict=True)]

    @property
    def weights(self):
        return [signed_power(z, 1 / (self.p - 1)) for z in self.mirrors]


class SignFormula(Momentum):
    """Sign descent; steps are multiplied by the gradient's ℓ1 norm unless ``normalize``."""

    def __init__(self, weights, *, lr, normalize=True, weight_decay=0.0, **options):
        super().__init__(weights, **options)
        self.weights, self.lr, self.normalize, self.weight_decay = weights, lr, normalize, weight_decay

    def step(self, gradients):
        steps = [np.sign(d) * (1.0 if self.normalize else np.abs(d).sum()) for d in self.directions(gradients)]
        decay = 1 - self.lr * self.weight_decay
        self.weights = [decay * w - self.lr * step for w, step in zip(self.weights, steps, strict=True)]


def assert_follows(optimizer, formula, rng, groups=({},), tolerance=1e-12, device="cpu", engine=None, **options):
    """Step an optimiser and its formula, with the same options of all groups and of each, along the same gradients.

    ``engine`` has options that change no number.
    """
    starts = [[rng.standard_normal(shape) for shape in SHAPES] for _ in groups]
    parameters = [[torch.nn.Parameter(torch.tensor(x, device=device)) for x in start] for start in starts]
    oracles = [formula(start, **{**options, **own}) for start, own in zip(starts, groups, strict=True)]
    given = [{"params": x, **own} for x, own in zip(parameters, groups, strict=True)]
    stepped = optimizer(given, **options, **(engine or {}))
    for _ in range(STEPS):
        for members, oracle in zip(parameters, oracles, strict=True):
            gradients = [rng.standard_normal(shape) for shape in SHAPES]
            for parameter, gradient in zip(members, gradients, strict=True):
                parameter.grad = torch.tensor(gradient, device=device)
            oracle.step(gradients)
        stepped.step()
        for members, oracle in zip(parameters, oracles, strict=True):
            largest = max(np.abs(w).max() for w in oracle.weights)
            for parameter, weights in zip(members, oracle.weights, strict=True):
                np.testing.assert_allclose(
                    parameter.detach().cpu().numpy(), weights, rtol=tolerance, atol=tolerance * largest
                )
