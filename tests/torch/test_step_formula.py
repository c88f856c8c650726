"""The optimisers' steps against their formulas."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402
from oracles.torch_steps import MirrorFormula, SignFormula, assert_follows  # noqa: E402

NORMALIZE = [{}, {"normalize": True, "scope": "each"}, {"normalize": True, "scope": "all"}]


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("normalize", NORMALIZE, ids=str)
@pytest.mark.parametrize("p", [1.05, 1.1, 1.25, 1.37, 1.5, 1.75, 1.8, 2, 2.6, 3, 5, 6])
def test_weights_follow_the_formula(p, normalize, foreach):
    rng, engine = np.random.default_rng(1), {"foreach": foreach}
    assert_follows(MirrorDescent, MirrorFormula, rng, lr=0.02, p=p, engine=engine, **normalize)


@pytest.mark.parametrize("p", [1.1, 1.75, 2, 4])
@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.5},
        {"maximize": True},
        {"momentum": 0.5, "weight_decay": 0.1, "maximize": True},
    ],
)
@pytest.mark.parametrize("normalize", NORMALIZE[:2], ids=str)
def test_momentum_decay_and_ascent_follow_the_formula(p, options, normalize):
    assert_follows(MirrorDescent, MirrorFormula, np.random.default_rng(2), lr=0.02, p=p, **normalize, **options)


def test_each_group_has_its_own_p_lr_and_norm():
    groups = [
        {"p": 1.1, "normalize": True, "scope": "all"},
        {"p": 3.0, "lr": 0.05},
        {"lr": 0.01, "momentum": 0.8},
    ]
    assert_follows(MirrorDescent, MirrorFormula, np.random.default_rng(3), groups, lr=0.02, p=1.75)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_sign_descent_follows_its_formula(foreach, normalize):
    options = {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "normalize": normalize}
    assert_follows(
        SignDescent, SignFormula, np.random.default_rng(5), engine={"foreach": foreach}, tolerance=1e-13, **options
    )


def test_p_2_is_gradient_descent_without_state():
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 12, dtype=torch.float64)) for _ in range(2))
    mirror = MirrorDescent([ours], lr=0.1, p=2.0, momentum=0.9)
    gradient_descent = torch.optim.SGD([theirs], lr=0.1, momentum=0.9)
    for _ in range(20):
        gradient = torch.randn(12, dtype=torch.float64)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mirror.step()
        gradient_descent.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-14, atol=1e-14)
    assert set(mirror.state[ours]) == {"momentum_buffer"}


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("p", [1.1, 1.75, 6.0])
@pytest.mark.parametrize("scope", ["each", "all"])
def test_normalised_steps_do_not_feel_the_scale_of_float32_gradients(p, scale, scope):
    # ‖g‖_11 of entries near 1e-8 sums numbers near 1e-88
    weights, gradient = torch.randn(2, 50).unbind()
    moved = []
    for factor in (1.0, scale):
        parameters = [torch.nn.Parameter(weights.clone()) for _ in range(2)]
        parameters[0].grad, parameters[1].grad = factor * gradient, 0.5 * factor * gradient
        MirrorDescent(parameters, lr=0.1, p=p, normalize=True, scope=scope).step()
        moved.append(torch.cat([x.detach() for x in parameters]))
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-5, atol=1e-7)


def test_a_gradient_of_zeros_moves_nothing():
    for scope in ("each", "all"):
        parameter = torch.nn.Parameter(torch.tensor([0.3, -0.0, 2.0], dtype=torch.float64))
        parameter.grad = torch.zeros_like(parameter)
        MirrorDescent([parameter], lr=0.1, p=1.5, normalize=True, scope=scope).step()
        np.testing.assert_allclose(parameter.detach(), [0.3, 0.0, 2.0], rtol=1e-15)


@pytest.mark.parametrize("normalize", [True, False])
def test_spectral_descent_steps_along_the_polar_factor(normalize):
    rng = np.random.default_rng(6)
    shapes = [(6, 4), (4, 6), (5, 2, 3), (7,), (1, 3), ()]
    parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
    gradients = [rng.standard_normal(shape) for shape in shapes]
    gradients[1] = np.outer(*(rng.standard_normal(k) for k in shapes[1]))  # of rank one: its null space must stay put
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    SpectralDescent(parameters, lr=0.5, normalize=normalize, iterations=None, flatten=True).step()
    for parameter, gradient in zip(parameters, gradients, strict=True):
        matrix = gradient.reshape(gradient.shape[0], -1) if gradient.ndim > 1 else gradient.reshape(-1, 1)
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        rank = int(np.sum(values > 1e-10 * values[0]))
        factor = (left[:, :rank] @ right[:rank]).reshape(gradient.shape)
        length = 1.0 if normalize else values.sum()
        np.testing.assert_allclose(parameter.detach(), -0.5 * length * factor, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_rounding_errors_of_a_gradient_in_half_precision_are_no_directions(dtype, autocast):
    generator = torch.Generator().manual_seed(0)
    inputs, labels = torch.randn(12, 8, generator=generator), torch.randint(4, (12,), generator=generator)
    weight = torch.nn.Parameter(torch.zeros(4, 8, dtype=torch.float32 if autocast else dtype))
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        logits = torch.nn.functional.linear(inputs.to(weight.dtype), weight)
    torch.nn.functional.cross_entropy(logits.float(), labels).backward()
    SpectralDescent([weight], lr=1.0, iterations=None, dtype=dtype if autocast else None).step()
    step = weight.detach().double()
    # the columns of the exact gradient of a softmax sum to zero
    assert step.sum(dim=0).norm() / 2 < 0.01
    np.testing.assert_allclose(torch.linalg.svdvals(step), [1, 1, 1, 0], atol=0.02)


def test_newton_schulz_brings_singular_values_near_one():
    parameter = torch.nn.Parameter(torch.zeros(40, 30))
    parameter.grad = 1e-12 * torch.randn(40, 30)
    SpectralDescent([parameter], lr=1.0, iterations=5).step()
    exact = torch.linalg.svd(parameter.grad.double())
    values = torch.linalg.svdvals(parameter.detach())
    assert values.min() > 0.5
    assert values.max() < 1.3
    inside = exact.U[:, :30].T @ -parameter.detach().double() @ exact.Vh.T
    off = inside - torch.diag(torch.diagonal(inside))
    assert off.abs().max() < 1e-3


def test_iterations_in_bfloat16_step_as_muon_does():
    # without momentum and decay, and with Muon's rate for square matrices; both round to bfloat16 (2^-8) five times
    generator = torch.Generator().manual_seed(5)
    gradients = [torch.randn(shape, generator=generator) for shape in [(32, 32), (12, 40), (40, 12)]]
    weights = []
    for make in (
        lambda x: torch.optim.Muon(x, lr=1.0, momentum=0.0, weight_decay=0.0, nesterov=False),
        lambda x: SpectralDescent(x, lr=1.0, iterations=5, dtype=torch.bfloat16),
    ):
        parameters = [torch.nn.Parameter(torch.zeros_like(x)) for x in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        make(parameters).step()
        weights.append([x.detach() / x.detach().norm() for x in parameters])
    for muon, ours in zip(*weights, strict=True):
        assert (muon - ours).norm() < 0.02
