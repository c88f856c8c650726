"""The optimisers' formulas, written once more in NumPy, and how an optimiser is held against them."""

import numpy as np
import torch

SHAPES = [(7, 5), (11,), (3, 4, 2), (1,), ()]
STEPS = 100


def signed_power(x, exponent):
    return np.sign(x) * np.abs(x) ** exponent


class Formula:
    """Mirror descent in float64, with nothing of the package in it."""

    def __init__(self, weights, lr, p, momentum=0.0, nesterov=False, weight_decay=0.0, normalize=None, maximize=False):
        self.mirrors = [signed_power(w, p - 1) for w in weights]
        self.buffers = [np.zeros_like(w) for w in weights]
        self.lr, self.p, self.momentum, self.nesterov = lr, p, momentum, nesterov
        self.weight_decay, self.normalize, self.maximize = weight_decay, normalize, maximize

    def step(self, gradients):
        q = self.p / (self.p - 1)
        gradients = [-g if self.maximize else g for g in gradients]
        self.buffers = [self.momentum * b + g for b, g in zip(self.buffers, gradients, strict=True)]
        directions = self.buffers
        if self.nesterov:
            directions = [g + self.momentum * b for b, g in zip(self.buffers, gradients, strict=True)]
        norms = [np.sum(np.abs(d) ** q) ** (1 / q) for d in directions]
        if self.normalize == "all":
            norms = [np.sum(np.array(norms) ** q) ** (1 / q)] * len(norms)
        elif self.normalize is None:
            norms = [1.0] * len(norms)
        decay = (1 - self.lr * self.weight_decay) ** (self.p - 1)
        self.mirrors = [decay * z - self.lr * d / n for z, d, n in zip(self.mirrors, directions, norms, strict=True)]

    @property
    def weights(self):
        return [signed_power(z, 1 / (self.p - 1)) for z in self.mirrors]


def assert_follows(formulas, make, rng, tolerance=1e-12, device="cpu"):
    """Step an optimiser and the formulas of its groups along the same gradients."""
    starts = [[rng.standard_normal(shape) for shape in SHAPES] for _ in formulas]
    groups = [[torch.nn.Parameter(torch.tensor(x, device=device)) for x in start] for start in starts]
    oracles = [formula(start) for formula, start in zip(formulas, starts, strict=True)]
    optimizer = make(groups)
    for _ in range(STEPS):
        for parameters, oracle in zip(groups, oracles, strict=True):
            gradients = [rng.standard_normal(shape) for shape in SHAPES]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = torch.tensor(gradient, device=device)
            oracle.step(gradients)
        optimizer.step()
        for parameters, oracle in zip(groups, oracles, strict=True):
            largest = max(np.abs(w).max() for w in oracle.weights)
            for parameter, weights in zip(parameters, oracle.weights, strict=True):
                np.testing.assert_allclose(
                    parameter.detach().cpu().numpy(), weights, rtol=tolerance, atol=tolerance * largest
                )
