"""The foretold learning rates: the first step is as long as that of the optimiser one comes from."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, lr_from_adam, lr_from_sgd  # noqa: E402

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
    with pytest.raises(ValueError, match="backward"):
        lr_from_sgd([zeros, frozen], 0.1)
