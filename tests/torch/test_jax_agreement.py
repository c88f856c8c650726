"""The PyTorch optimiser and the training engine's transformation take the same steps along the same gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
import jax  # noqa: E402
import optax  # noqa: E402

import attsvm  # noqa: E402
from attsvm.torch import MirrorDescent  # noqa: E402
from oracles.torch_steps import SHAPES  # noqa: E402


@pytest.mark.parametrize("options", [{"normalize": False}, {"scope": "each"}, {"scope": "all"}], ids=str)
@pytest.mark.parametrize("p", [1.05, 1.75, 2.0, 6.0])
def test_both_take_the_same_hundred_steps(p, options):
    options = {"normalize": True, **options}
    rng = np.random.default_rng(7)
    start = {str(i): rng.standard_normal(shape) for i, shape in enumerate(SHAPES)}
    gradients = [{name: rng.standard_normal(x.shape) for name, x in start.items()} for _ in range(100)]

    parameters = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in start.items()}
    optimizer = MirrorDescent(parameters.values(), lr=0.02, p=p, **options)
    for step in gradients:
        for name, gradient in step.items():
            parameters[name].grad = torch.tensor(gradient)
        optimizer.step()

    with jax.enable_x64(True):
        transformation = attsvm.optimizers.mirror_descent(learning_rate=0.02, p=p, **options)
        update = jax.jit(transformation.update)
        weights = jax.tree.map(jax.numpy.asarray, start)
        state = transformation.init(weights)
        for step in gradients:
            updates, state = update(step, state, weights)
            weights = optax.apply_updates(weights, updates)
        wanted = {name: np.asarray(x) for name, x in weights.items()}

    largest = max(np.abs(x).max() for x in wanted.values())
    for name, parameter in parameters.items():
        np.testing.assert_allclose(parameter.detach().numpy(), wanted[name], rtol=1e-12, atol=1e-12 * largest)
