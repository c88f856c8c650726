"""The foretold learning rates: the first step is as long as that of the optimiser one comes from."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import (  # noqa: E402
    ColumnDescent,
    MirrorDescent,
    RowDescent,
    SignDescent,
    SpectralDescent,
    lr_from_adam,
    lr_from_sgd,
)

FORETELL = {torch.optim.SGD: lr_from_sgd, torch.optim.Adam: lr_from_adam}


def layer(gradient=1e-3):
    """Weights of one size, so that the slope of the link is one number, and gradients of another."""
    sizes = torch.where(torch.rand(20, 30) < 0.5, -0.05, 0.05).double()
    weights = torch.nn.Parameter(sizes)
    weights.grad = torch.where(torch.rand(20, 30) < 0.5, -gradient, gradient).double()
    return weights


@pytest.mark.parametrize("peer", FORETELL, ids=lambda peer: peer.__name__)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("p", [1.1, 1.75, 2.0, 3.0])
def test_the_first_step_moves_weights_as_far(peer, normalize, p):
    weights = layer()
    lr = FORETELL[peer]([weights], 1e-6, p, normalize=normalize)
    moved = []
    for make in (lambda w: peer([w], lr=1e-6), lambda w: MirrorDescent([w], lr, p, normalize=normalize)):
        copy = torch.nn.Parameter(weights.detach().clone())
        copy.grad = weights.grad
        make(copy).step()
        moved.append((copy - weights).detach())
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-3, atol=0)


def test_tensors_that_say_nothing_are_left_out_and_the_rest_count_by_size():
    large, small = layer(), torch.nn.Parameter(torch.full((5,), 2.0))
    small.grad = torch.full((5,), 3.0)
    zeros, frozen = torch.nn.Parameter(torch.zeros(7)), torch.nn.Parameter(torch.ones(7))
    zeros.grad = torch.ones(7)
    alone = [lr_from_sgd([one], 0.1, 1.5) for one in (large, small)]
    together = lr_from_sgd([large, small, zeros, frozen], 0.1, 1.5)
    assert together == pytest.approx(alone[0] ** (600 / 605) * alone[1] ** (5 / 605), rel=1e-9)
    frozen.grad = torch.zeros(7)
    assert lr_from_sgd([large, frozen], 0.1, 1.5) == pytest.approx(alone[0])
    with pytest.raises(ValueError, match="backward"):
        lr_from_sgd([frozen], 0.1)


def rms(x):
    return x.square().mean().sqrt().item()


def trained(parameters):
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype)
    return parameters


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("optimizer", [SignDescent, SpectralDescent, RowDescent, ColumnDescent])
@pytest.mark.parametrize("peer", FORETELL, ids=lambda peer: peer.__name__)
def test_the_first_step_of_other_optimizers_is_as_long(peer, optimizer, normalize, dtype):
    options = {} if optimizer is SignDescent else {"heads": 2}
    (weights,) = trained([torch.nn.Parameter(torch.zeros(6, 5, dtype=dtype))])
    lr = FORETELL[peer]([weights], 1e-2, optimizer=optimizer, normalize=normalize, **options)
    other = torch.nn.Parameter(torch.zeros_like(weights))
    other.grad = weights.grad.clone()
    optimizer([weights], lr, normalize=normalize, **options).step()
    peer([other], lr=1e-2).step()
    assert rms(weights.detach().double()) == pytest.approx(rms(other.detach().double()), rel=1e-2)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("p", [1.1, 1.5, 3.0])
def test_weights_of_zero_alone_leave_zero_as_fast(p, normalize):
    """LoRA at the start: B is zero and has a gradient, A is not zero and its gradient is."""
    a, b = torch.nn.Parameter(torch.randn(3, 8).double()), torch.nn.Parameter(torch.zeros(6, 3).double())
    a.grad, b.grad = torch.zeros_like(a), torch.randn(6, 3).double()
    lr = lr_from_adam([a, b], 1e-2, p=p, normalize=normalize)
    MirrorDescent([a, b], lr, p=p, normalize=normalize).step()
    assert rms(b.detach()) == pytest.approx(1e-2, rel=1e-6)


def test_parameters_are_given_as_to_an_optimizer():
    model = torch.nn.Linear(4, 3)
    trained(model.parameters())
    lr = lr_from_adam(model.parameters(), 1e-3, normalize=True)
    assert lr_from_adam(model.named_parameters(), 1e-3, normalize=True) == lr
    assert lr_from_adam([{"params": model.parameters(), "normalize": True, "lr": 5.0}], 1e-3) == lr
    assert lr_from_adam(MirrorDescent(model.parameters(), 1.0, normalize=True).param_groups, 1e-3) == lr
    apart = [{"params": [x], "weight_decay": decay} for x, decay in zip(model.parameters(), (0.1, 0.0), strict=True)]
    assert lr_from_adam(apart, 1e-3, normalize=True) == pytest.approx(lr)
    apart[0]["p"] = 3.0
    with pytest.raises(ValueError, match=r"p: expected one value for all groups, got 3.0 and 1.1"):
        lr_from_adam(apart, 1e-3)
    with pytest.raises(TypeError, match="Linear"):
        lr_from_adam(torch.nn.Sequential(model), 1e-3)


@pytest.mark.parametrize(("peer", "normalize", "factor"), [
    (lr_from_sgd, False, 1.0), (lr_from_sgd, True, 10 / 19**0.5), (lr_from_adam, False, 0.1),
    (lr_from_adam, True, 19**-0.5),
])  # fmt: skip
def test_momentum_makes_steps_longer_that_are_not_normalised(peer, normalize, factor):
    rates = [peer([layer()], 1e-3, normalize=normalize, momentum=momentum) for momentum in (0.0, 0.9)]
    assert rates[1] == pytest.approx(factor * rates[0])


def test_the_norm_may_be_that_of_the_group():
    parameters = trained([torch.nn.Parameter(torch.full((n,), 0.5)) for n in (7, 5)])
    whole = torch.nn.Parameter(torch.full((12,), 0.5))
    whole.grad = torch.cat([x.grad for x in parameters])
    lr = lr_from_sgd([whole], 0.1, p=1.5, normalize=True)
    assert lr_from_sgd(parameters, 0.1, p=1.5, normalize=True, scope="all") == pytest.approx(lr)


@pytest.mark.parametrize(
    ("lr", "options", "says"),
    [
        (0.0, {}, "lr: expected a number > 0, got 0.0"),
        (-1.0, {}, "lr: expected a number > 0"),
        (float("nan"), {}, "lr: expected a number > 0"),
        ("0.1", {}, "lr: expected a number > 0, got '0.1'"),
        (0.1, {"normalize": "False"}, "normalize: expected True or False"),
        (0.1, {"p": 1.0}, "p: expected 1 < p < inf, got 1.0"),
        (0.1, {"p": 0.5}, "p: expected"),
        (0.1, {"p": float("inf")}, "p: expected"),
        (0.1, {"momentum": 1.0}, "momentum: expected"),
        (0.1, {"optimizer": torch.optim.Adam}, "optimizer: expected a class of attsvm.torch"),
        (0.1, {"optimizer": SpectralDescent, "heads": 7}, "heads: expected a divisor"),
    ],
)
@pytest.mark.parametrize("peer", FORETELL.values(), ids=lambda peer: peer.__name__)
def test_arguments_out_of_range_are_refused_by_name(peer, lr, options, says):
    with pytest.raises(ValueError, match=says):
        peer([layer()], lr, **options)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_gradients_that_an_optimizer_would_skip_are_refused(bad):
    model = torch.nn.Linear(4, 3)
    trained(model.parameters())
    model.bias.grad[1] = bad
    with pytest.raises(ValueError, match="expected finite gradients, got that of 'bias'"):
        lr_from_adam(model.named_parameters(), 1e-3)
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="only dense gradients"):
        lr_from_adam(embedding.parameters(), 1e-3)


def test_groups_for_adamw_are_left_out():
    own, other = layer(), layer(gradient=1.0)
    groups = [{"params": [other], "adamw": True, "lr": 1e-3}, {"params": [own]}]
    assert lr_from_adam(groups, 1e-3, p=1.5) == lr_from_adam([own], 1e-3, p=1.5)
    with pytest.raises(ValueError, match="parameters: expected some outside of the groups with adamw=True"):
        lr_from_adam(groups[:1], 1e-3, p=1.5)
