"""The PyTorch optimiser and the training engine's transformation take the same steps along the same gradients."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
import jax  # noqa: E402
import optax  # noqa: E402

import attsvm  # noqa: E402
from attsvm.torch import ColumnDescent, MirrorDescent, RowDescent, SpectralDescent  # noqa: E402
from oracles.torch_steps import SHAPES  # noqa: E402

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize(
    ("ours", "factory", "options", "fused"),
    [
        (SpectralDescent, "spectral_descent", {"iterations": None}, False),
        (SpectralDescent, "spectral_descent", {"iterations": 5}, True),
        (RowDescent, "column_descent", {}, False),
        (ColumnDescent, "row_descent", {}, False),
        (ColumnDescent, "row_descent", {}, True),
    ],
)
def test_both_take_the_same_steps_on_the_heads_of_linear_layers(ours, factory, options, fused):
    # a linear layer stores [K_1 … K_H]' (H m, d), training K (H, d, m)
    rng = np.random.default_rng(3)
    start = rng.standard_normal((2, 3, 5, 2))
    gradients = rng.standard_normal((4, *start.shape))
    layouts = {
        "linear": (lambda x: np.swapaxes(x, 1, 2).reshape(6, 5), lambda x: np.swapaxes(x.reshape(3, 2, 5), 1, 2)),
        "heads": (np.ascontiguousarray, np.asarray),
    }
    polar = {"polar": "optax"} if options.get("iterations") else {}
    optimizer = getattr(attsvm.optimizers, factory)(0.1, scope="fused" if fused else "heads", weight_decay=0.2, **polar)
    with jax.enable_x64(True):
        update = jax.jit(lambda g, w: optimizer.update(g, optimizer.init(w), w)[0])
        weights = {"K": start[0], "Q": start[1]}
        for step in gradients:
            updates = update({"K": step[0], "Q": step[1]}, weights)
            weights = {name: x + np.asarray(updates[name]) for name, x in weights.items()}
    for name, (stored, read) in layouts.items():
        if name == "heads" and ours is not SpectralDescent:
            continue  # the rows of K are then those of the tensor
        parameters = [torch.nn.Parameter(torch.tensor(stored(x))) for x in start]
        layout = {"heads": 1 if fused else 3} if name == "linear" else {"flatten": False if not fused else None}
        descent = ours(parameters, lr=0.1, fused=fused, weight_decay=0.2, **layout, **options)
        for step in gradients:
            for parameter, g in zip(parameters, step, strict=True):
                parameter.grad = torch.tensor(stored(g))
            descent.step()
        for parameter, wanted in zip(parameters, weights.values(), strict=True):
            np.testing.assert_allclose(read(parameter.detach().numpy()), wanted, rtol=0, atol=1e-12)


def test_heads_that_do_not_fit_are_refused():
    weight = torch.nn.Parameter(torch.zeros(6, 4))
    for options, words in (
        ({"heads": 4}, "heads: expected a divisor"),
        ({"heads": 0}, "heads"),
        ({"fused": 2}, "fused"),
    ):
        with pytest.raises(ValueError, match=words):
            SpectralDescent([weight], lr=0.1, **options)
