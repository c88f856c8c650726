"""What every `torch.optim.Optimizer` does: groups, closures, schedulers, hooks, options that are checked."""

import math

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402

OPTIMIZERS = [MirrorDescent, SignDescent, SpectralDescent]


def parameter(*shape, dtype=torch.float32):
    made = torch.nn.Parameter(torch.randn(*shape, dtype=dtype))
    made.grad = torch.randn(*shape, dtype=dtype)
    return made


@pytest.mark.parametrize(
    ("optimizer_class", "options", "says"),
    [
        (MirrorDescent, {"p": 1.0}, "p: expected 1 < p < inf, got 1.0"),
        (MirrorDescent, {"p": 0.5}, "p: expected .*0.5"),
        (MirrorDescent, {"p": math.inf}, "p: expected .*inf"),
        (MirrorDescent, {"p": math.nan}, "p: expected .*nan"),
        (MirrorDescent, {"lr": -1.0}, "lr: expected .*-1.0"),
        (MirrorDescent, {"lr": math.nan}, "lr: expected .*nan"),
        (MirrorDescent, {"momentum": 1.0}, "momentum: expected .*1.0"),
        (MirrorDescent, {"weight_decay": -0.1}, "weight_decay: expected .*-0.1"),
        (MirrorDescent, {"nesterov": True}, "nesterov"),
        (MirrorDescent, {"scope": "global"}, "scope: expected .*'global'"),
        (MirrorDescent, {"nonfinite": "ignore"}, "nonfinite: expected .*'ignore'"),
        (SignDescent, {"momentum": -0.1}, "momentum: expected .*-0.1"),
        (SpectralDescent, {"iterations": 0}, "iterations: expected .*got 0"),
        (
            SpectralDescent,
            {"iterations": None, "dtype": torch.float64},
            "dtype: expected None or .* with iterations=None, got torch.float64",
        ),
    ],
)
def test_options_out_of_range_are_refused_by_name(optimizer_class, options, says):
    with pytest.raises(ValueError, match=says):
        optimizer_class([parameter(3)], **{"lr": 0.1, **options})
    if "nonfinite" not in options:
        optimizer = optimizer_class([parameter(3)], lr=0.1)
        with pytest.raises(ValueError, match=says):
            optimizer.add_param_group({"params": [parameter(2)], **options})
        assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(optimizer_class):
    weights = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = optimizer_class([weights], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = weights.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 6.0
    assert optimizer.step(closure).item() < 6.0


SCHEDULERS = {
    "steps": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
    "one cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8),
    "warm-up": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 5)),
}


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers_set_the_length_of_each_step(schedule, as_tensor):
    weights = parameter(6, dtype=torch.float64)
    optimizer = MirrorDescent([weights], lr=torch.tensor(0.1) if as_tensor else 0.1, p=1.5, momentum=0.9)
    scheduler = schedule(optimizer)
    for _ in range(10):
        before = weights.detach().sign() * weights.detach().abs().sqrt()
        lr, momentum = float(optimizer.param_groups[0]["lr"]), optimizer.param_groups[0]["momentum"]
        buffer = optimizer.state[weights].get("momentum_buffer", torch.zeros(6, dtype=torch.float64)).clone()
        optimizer.step()
        moved = weights.detach().sign() * weights.detach().abs().sqrt()
        torch.testing.assert_close(moved, before - lr * (momentum * buffer + weights.grad), rtol=1e-9, atol=1e-12)
        scheduler.step()


def test_a_step_of_no_length_moves_only_the_momentum():
    weights = parameter(5)
    before, gradient = weights.detach().clone(), weights.grad.clone()
    optimizer = MirrorDescent([weights], lr=0.0, p=1.75, momentum=0.9, weight_decay=0.1)
    optimizer.step()
    assert torch.equal(weights, before)
    assert torch.equal(optimizer.state[weights]["momentum_buffer"], gradient)


def test_a_group_added_late_has_its_own_options():
    early, late = parameter(3, dtype=torch.float64), parameter(3, dtype=torch.float64)
    optimizer = MirrorDescent([early], lr=0.1, p=1.5)
    optimizer.step()
    optimizer.add_param_group({"params": [late], "p": 3.0, "lr": 0.2, "maximize": True})
    mirror = late.detach().sign() * late.detach().square() + 0.2 * late.grad
    optimizer.step()
    torch.testing.assert_close(late.detach(), mirror.sign() * mirror.abs().sqrt())
    assert optimizer.param_groups[0]["p"] == 1.5


@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_gradients_are_only_read(optimizer_class):
    weights = parameter(4, 3)
    gradient = weights.grad.clone()
    for options in ({}, {"momentum": 0.9, "nesterov": True}, {"maximize": True}, {"normalize": False}):
        optimizer_class([weights], lr=0.1, **options).step()
        assert torch.equal(weights.grad, gradient)


@pytest.mark.parametrize("scope", ["each", "all"])
def test_memory_formats_and_dtypes_may_be_mixed(scope):
    start, gradient = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    stepped = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        images = torch.nn.Parameter(start.clone(memory_format=memory_format))
        images.grad = gradient
        others = [torch.nn.Parameter(torch.ones(5, dtype=dtype)) for dtype in (torch.float64, torch.bfloat16)]
        for other in others:
            other.grad = torch.ones_like(other)
        MirrorDescent([images, *others], lr=0.1, p=1.5, normalize=True, scope=scope).step()
        assert images.is_contiguous(memory_format=memory_format)
        stepped.append([images, *others])
    for one, other in zip(*stepped, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_step_hooks_run_and_profiles_name_the_optimiser():
    weights, seen = parameter(3), []
    optimizer = MirrorDescent([weights], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    with torch.profiler.profile() as profile:
        optimizer.step()
    assert seen == ["before", "after"]
    assert any("MirrorDescent.step" in event.key for event in profile.key_averages())
