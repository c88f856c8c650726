"""Groups that AdamW updates, inside the optimizers here: against `torch.optim.AdamW`."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402

OPTIONS = {"weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}


def pair(dtype=torch.float32, layout=lambda x: x):
    tensors = [layout(torch.randn(6, 4).to(dtype)), torch.randn(5).to(dtype), torch.randn(()).to(dtype)]
    return [[torch.nn.Parameter(x.clone()) for x in tensors] for _ in range(2)]


def train(networks, optimizers, steps=6, scale=1.0):
    for _ in range(steps):
        for ours, theirs in zip(*networks, strict=True):
            theirs.grad = torch.randn_like(theirs)
            ours.grad = theirs.grad.clone() * scale
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize("kind", [MirrorDescent, SignDescent, SpectralDescent])
@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.t(), lambda x: x.repeat(1, 2)[:, ::2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torch(kind, dtype, layout):
    ours, theirs = networks = pair(dtype, layout)
    matrix = torch.nn.Parameter(torch.ones(3, 3))
    matrix.grad = torch.eye(3)
    optimizer = kind([{"params": ours, "adamw": True, "lr": 0.02, **OPTIONS}, {"params": [matrix]}], lr=0.1)
    train(networks, [optimizer, torch.optim.AdamW(theirs, lr=0.02, fused=True, **OPTIONS)])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    assert not torch.equal(matrix, torch.ones(3, 3))


def test_float32_steps_are_bit_for_bit_those_of_the_fused_kernel():
    ours, theirs = networks = pair()
    optimizer = MirrorDescent([{"params": ours, "adamw": True}], lr=0.02, weight_decay=0.1)
    train(networks, [optimizer, torch.optim.AdamW(theirs, lr=0.02, weight_decay=0.1, fused=True)], 20)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_bfloat16_weights_have_float32_state_and_follow_changes():
    narrow, wide = torch.nn.Parameter(torch.ones(20).bfloat16()), torch.nn.Parameter(torch.ones(20))
    optimizer = SpectralDescent([{"params": [narrow], "adamw": True}], lr=1e-4)
    other = torch.optim.AdamW([wide], lr=1e-4, weight_decay=0.0, fused=True)
    for _ in range(100):
        narrow.grad = torch.randn(20).bfloat16()
        wide.grad = narrow.grad.float()
        optimizer.step()
        other.step()
    assert torch.equal(narrow, wide.bfloat16())
    narrow.data.fill_(0.5)
    narrow.grad.zero_()
    optimizer.step()
    torch.testing.assert_close(narrow.detach(), torch.full((20,), 0.5).bfloat16(), atol=1e-2, rtol=0)


def test_scaled_and_reversed_gradients_are_undone():
    ours, theirs = networks = pair()
    optimizer = SpectralDescent([{"params": ours, "adamw": True, "maximize": True}], lr=0.02)
    optimizer.found_inf, optimizer.grad_scale = torch.zeros(()), torch.tensor(8.0)
    train(networks, [optimizer, torch.optim.AdamW(theirs, lr=0.02, weight_decay=0.0, maximize=True)], scale=8.0)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_resumed_run_ends_with_the_same_bits(dtype):
    def made(network):
        groups = [{"params": network[:1], "momentum": 0.9}, {"params": network[1:], "adamw": True, "eps": 1e-6}]
        return SpectralDescent(groups, lr=0.02)

    networks = pair(dtype)
    whole, interrupted = made(networks[0]), made(networks[1])
    train(networks, [whole, interrupted])
    resumed = made(networks[1])
    resumed.load_state_dict(copy.deepcopy(interrupted.state_dict()))
    assert resumed.state[networks[1][1]]["step"].dtype == torch.float32
    train(networks, [whole, resumed])
    assert all(torch.equal(one, other) for one, other in zip(*networks, strict=True))


def test_a_gradient_that_is_not_finite_leaves_both_kinds_of_groups_as_they_were():
    ours, _ = pair()
    optimizer = MirrorDescent([{"params": ours[:1]}, {"params": ours[1:], "adamw": True}], lr=0.02)
    for x in ours:
        x.grad = torch.ones_like(x)
    optimizer.step()
    before, state = [x.detach().clone() for x in ours], copy.deepcopy(optimizer.state_dict()["state"])
    ours[2].grad.fill_(float("inf"))
    with pytest.warns(RuntimeWarning, match="step skipped"):
        optimizer.step()
    assert all(torch.equal(x, y) for x, y in zip(ours, before, strict=True))
    for key, entries in optimizer.state_dict()["state"].items():
        assert all(torch.equal(x, state[key][name]) for name, x in entries.items())


@pytest.mark.parametrize(
    ("group", "options", "error", "says"),
    [
        ({"adamw": True, "momentum": 0.9}, {}, TypeError, "got momentum"),
        ({"adamw": True, "p": 1.5}, {}, TypeError, "got p"),
        ({"betas": (0.5, 0.9)}, {}, TypeError, "got betas"),
        ({"adamw": 1}, {}, ValueError, "adamw: expected True or False"),
        ({"adamw": True, "betas": (0.9, 1.0)}, {}, ValueError, "betas: expected two numbers"),
        ({}, {"eps": 1e-6}, ValueError, "eps: expected a group with adamw=True"),
    ],
)
def test_options_that_would_not_be_read_are_refused(group, options, error, says):
    with pytest.raises(error, match=says):
        MirrorDescent([{"params": pair()[0], **group}], lr=0.1, **options)
