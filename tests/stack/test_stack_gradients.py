"""The gradient of every layer against differences of the loss in arithmetic with enough digits."""

import jax
import mpmath
import numpy as np
import pytest

import attsvm
from attsvm.heads import Linear
from attsvm.losses import parse_loss
from attsvm.stack.objective import VALUES, StackObjective
from attsvm.training import parse_attention
from attsvm.training.attention_heads import AttentionHeads
from attsvm.training.trials import TrialData
from oracles.training import exact

N, T, D = 2, 3, 3
exp = np.vectorize(mpmath.exp, otypes=[object])


def loss_by_definition(stack, parameters):
    """Mean exponential loss in mpmath; ``parameters`` of each head in front."""
    problem, heads = stack.problem, stack.problem.num_heads or 1
    given = problem[0] if problem.num_heads else problem
    values = None if stack.values is None else exact(stack.values)
    v = np.reshape(exact(problem.head), (heads, D))
    total = mpmath.mpf(0)
    for i in range(N):
        x = exact(given.tokens[i])
        in_use = np.ones(T, bool) if given.mask is None else given.mask[i]
        for number in range(stack.layers - 1):
            new = [x[t] * int(stack.residual) for t in range(T)]
            for t in range(T):
                allowed = in_use & (np.arange(T) <= t) if stack.causal else in_use
                for h in range(heads):
                    if not allowed.any():
                        continue
                    o = pooled(x[allowed], weights(parameters, number, h), x[t])
                    if values is not None:
                        o = np.reshape(values, (heads, stack.layers - 1, D, D))[h, number] @ o
                    new[t] = new[t] + o
            x = np.array(new)
        z = exact(given.queries[i])
        f = sum(v[h] @ pooled(x[in_use], weights(parameters, stack.layers - 1, h), z) for h in range(heads))
        total += mpmath.exp(-f * int(given.labels[i]))
    return total / N


def weights(parameters, number, head):
    if f"W{number}" in parameters:
        return parameters[f"W{number}"][head]
    return parameters[f"K{number}"][head] @ parameters[f"Q{number}"][head].T


def pooled(x, W, z):
    s = x @ W @ z
    e = exp(s - s.max())
    return e @ x / e.sum()


def slope_along(stack, parameters, name, direction):
    """A central difference of the loss, whose error is far below the gradient."""
    h = mpmath.mpf(10) ** -(mpmath.mp.dps // 3)
    ends = []
    for sign in (1, -1):
        moved = {**parameters, name: parameters[name] + direction * (h * sign)}
        ends.append(loss_by_definition(stack, moved))
    return (ends[0] - ends[1]) / (2 * h)


def gradient(stack, parameters, attention):
    """That of the objective, as mpmath numbers."""
    objective = StackObjective(
        attention,
        Linear(),
        parse_loss("exponential", None),
        heads=AttentionHeads(stack.problem.num_heads),
        num_layers=stack.layers,
        residual=stack.residual,
        causal=stack.causal,
    )
    data, one = TrialData(stack.problem, np.dtype(np.float64)), np.arange(1)
    fixed = {"v": data.last(Linear().initial(stack.problem)["v"], one)}
    if stack.values is not None:
        fixed[VALUES] = data.last(stack.values, one)
    of_heads = (lambda x: np.moveaxis(x, 0, -1)) if stack.problem.num_heads else (lambda x: x[0])
    with jax.enable_x64(True):
        trained = {name: of_heads(x)[..., None] for name, x in parameters.items()}
        _, evaluated = jax.jit(objective.evaluate)(trained, fixed, data.take(one), 0.0)
    found = {}
    for name, x in evaluated.gradient.items():
        x = np.asarray(x)[..., 0]
        x = np.moveaxis(x, -1, 0) if stack.problem.num_heads else x[None]
        found[name] = exact(x) * mpmath.exp(mpmath.mpf(float(evaluated.logs[name][0])))
    return found


CASES = {
    "two layers": {"layers": 2},
    "three layers": {"layers": 3},
    "no residual": {"layers": 3, "residual": False},
    "causal, masked": {"layers": 2, "causal": True, "masked": True},
    "two heads": {"layers": 3, "num_heads": 2},
    "factors": {"layers": 2, "rank": 2},
}


@pytest.mark.parametrize("size", [1.0, 200.0])
@pytest.mark.parametrize("case", CASES)
def test_gradient_of_each_layer_is_relatively_exact(case, size):
    options = dict(CASES[case])
    generator = np.random.default_rng(7)
    heads, masked, rank = options.pop("num_heads", None), options.pop("masked", False), options.pop("rank", None)
    drawn = attsvm.datasets.random_problem(N, T, D, seed=3, num_heads=heads)
    if masked:
        mask = np.ones((N, T), bool)
        mask[1, 2] = False
        drawn = attsvm.Problem(drawn.tokens, drawn.labels, drawn.queries, drawn.head, mask=mask)
    values = None if heads is None else generator.standard_normal((heads, options["layers"] - 1, D, D))
    stack = attsvm.Stack(drawn, values=values, **options)
    columns = D if rank is None else rank
    names = [f"W{number}" for number in range(stack.layers)]
    if rank is not None:
        names = [f"{name}{number}" for number in range(stack.layers) for name in "KQ"]
    power = 1 if rank is None else 0.5
    parameters = {name: size**power * generator.standard_normal((heads or 1, D, columns)) for name in names}
    attention = parse_attention("combined" if rank is None else "factored", drawn, rank)
    with mpmath.workdps(60 if size == 1.0 else 1500):
        found = gradient(stack, parameters, attention)
        given = {name: exact(x) for name, x in parameters.items()}
        for name, x in found.items():
            largest = max(abs(entry) for entry in x.ravel())
            assert largest > 0
            for _ in range(2):
                direction = exact(generator.choice([-1.0, 1.0], x.shape))
                error = abs(slope_along(stack, given, name, direction) - (x * direction).sum())
                # logits of this size have rounding errors of eps times it, and so have the exponents
                assert error <= 1e-13 * (10.0 + size) * largest
