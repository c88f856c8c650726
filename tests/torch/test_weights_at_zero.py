"""Weights that start at zero under p < 2: the warning, the linear term of the link, and what it leaves as it is."""

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, lr_from_adam  # noqa: E402


def regression(steps, **options):
    """Loss of W with W = 0 at the start, after steps towards a given matrix."""
    generator = torch.Generator().manual_seed(0)
    wanted, weights = 0.2 * torch.randn(8, 8, generator=generator), torch.nn.Parameter(torch.zeros(8, 8))
    optimizer = MirrorDescent([("weights", weights)], **options)
    for _ in range(steps):
        loss = (weights - wanted).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item() / wanted.square().sum().item()


def test_weights_that_stay_at_zero_are_reported_once_and_weights_that_leave_it_are_not():
    with pytest.warns(
        RuntimeWarning, match="'weights' started at zero, and 100% of its entries are below 1e-06"
    ) as caught:
        assert regression(120, lr=2e-3, p=1.1, normalize=True) > 0.99
    assert (len(caught), caught[0].filename) == (1, __file__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regression(60, lr=2e-3, p=1.1, normalize=True, linear=0.05)
        regression(60, lr=2e-3, p=2.0, normalize=True)
        regression(60, lr=0.05, p=1.5)


def test_the_linear_term_lets_weights_leave_zero():
    with pytest.warns(RuntimeWarning, match="started at zero"):
        slow = regression(100, lr=5e-3, p=1.1, normalize=True)
    assert regression(100, lr=5e-2, p=1.1, normalize=True, linear=0.06) < 0.3 * slow


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("p", [1.05, 1.1, 1.37, 1.75])
def test_weights_are_the_power_and_the_linear_term_of_the_mirror_variable(p, compiled):
    rng, linear, lr = np.random.default_rng(0), 0.03, 0.01
    start = rng.standard_normal(200) * np.where(rng.random(200) < 0.2, 0.0, 1.0)
    parameter = torch.nn.Parameter(torch.tensor(start))
    optimizer = MirrorDescent([parameter], lr=lr, p=p, linear=linear, weight_decay=0.1, compiled=compiled)
    z = None
    for _ in range(5):
        gradient, before = rng.standard_normal(200), parameter.detach().numpy().copy()
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        now = optimizer.state[parameter]["mirror"].numpy().copy()
        link = np.sign(now) * np.abs(now) ** (1 / (p - 1)) + linear * now
        np.testing.assert_allclose(parameter.detach().numpy(), link, rtol=1e-9, atol=1e-12)
        # the decay: w is multiplied by 1 − lr·weight_decay, up to its square
        decayed = now + lr * gradient
        linked = np.sign(decayed) * np.abs(decayed) ** (1 / (p - 1)) + linear * decayed
        np.testing.assert_allclose(linked, (1 - lr * 0.1) * before, rtol=3e-5, atol=1e-12)
        z = now
    assert np.isfinite(z).all()


def test_a_changed_weight_and_a_resumed_run_go_on_from_the_weights():
    parameter = torch.nn.Parameter(torch.tensor([0.5, 0.0, 1e-4]))
    optimizer = MirrorDescent([parameter], lr=0.1, p=1.1, linear=0.02)
    parameter.grad = torch.zeros(3)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([0.5, 0.0, 1e-4]), rtol=1e-5, atol=1e-9)
    with torch.no_grad():
        parameter[0] = 0.25
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([0.25, 0.0, 1e-4]), rtol=1e-5, atol=1e-9)
    other = torch.nn.Parameter(parameter.detach().clone())
    resumed = MirrorDescent([other], lr=9.0, p=1.5)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for x, made in ((parameter, optimizer), (other, resumed)):
        x.grad = torch.tensor([0.3, -0.2, 0.1])
        made.step()
    assert torch.equal(parameter, other)


def test_the_first_step_with_the_linear_term_is_as_long_as_that_of_adam():
    parameter = torch.nn.Parameter(torch.where(torch.rand(400) < 0.5, -0.05, 0.05).double())
    parameter.grad = torch.where(torch.rand(400) < 0.5, -1.0, 1.0).double()
    before = parameter.detach().clone()
    lr = lr_from_adam([parameter], 1e-6, p=1.1, normalize=True, linear=0.02)
    MirrorDescent([parameter], lr, p=1.1, normalize=True, linear=0.02).step()
    torch.testing.assert_close(
        (parameter.detach() - before).abs(), torch.full((400,), 1e-6).double(), rtol=1e-3, atol=0
    )


def test_a_linear_term_is_for_p_below_2():
    with pytest.raises(ValueError, match=r"linear: expected 0 with p = 2\.0, got 0\.1"):
        MirrorDescent([torch.nn.Parameter(torch.ones(2))], lr=0.1, p=2.0, linear=0.1)
