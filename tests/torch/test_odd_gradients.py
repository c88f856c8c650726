"""Gradients that cannot be stepped along, or not everywhere: non-finite, sparse, complex, absent, scaled."""

import copy
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import (  # noqa: E402
    ColumnDescent,
    MirrorDescent,
    NonFiniteGradientError,
    RowDescent,
    SignDescent,
    SpectralDescent,
)

OPTIMIZERS = [MirrorDescent, SignDescent, SpectralDescent]


def stepped(optimizer_class, **options):
    """Two parameters in groups of their own after two steps, and their optimiser."""
    parameters = [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(5))]
    groups = [{"params": [parameter]} for parameter in parameters]
    optimizer = optimizer_class(groups, lr=0.1, momentum=0.9, **options)
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
    return parameters, optimizer


def assert_untouched(parameters, optimizer, before):
    weights, state = before
    for parameter, value in zip(parameters, weights, strict=True):
        assert torch.equal(parameter, value)
    now = optimizer.state_dict()
    assert now["param_groups"] == state["param_groups"]
    for key, entries in state["state"].items():
        for name, value in entries.items():
            assert torch.equal(now["state"][key][name], value)


def snapshot(parameters, optimizer):
    return [x.detach().clone() for x in parameters], copy.deepcopy(optimizer.state_dict())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_a_non_finite_gradient_leaves_everything_as_it_was_and_says_where(optimizer_class, bad):
    parameters, optimizer = stepped(optimizer_class)
    before = snapshot(parameters, optimizer)
    parameters[1].grad[3] = bad
    with pytest.warns(RuntimeWarning, match=r"step skipped.* parameter 0 of group 1 is not finite") as caught:
        optimizer.step()
    assert caught[0].filename == __file__
    assert_untouched(parameters, optimizer, before)
    assert optimizer.skipped_steps == 1

    parameters, optimizer = stepped(optimizer_class, nonfinite="raise")
    before = snapshot(parameters, optimizer)
    parameters[0].grad[0, 0], parameters[0].grad[1, 1] = bad, -bad  # their sum may well be zero or a NaN
    with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 0"):
        optimizer.step()
    assert_untouched(parameters, optimizer, before)


def test_a_gradient_whose_sum_overflows_is_finite():
    parameter = torch.nn.Parameter(torch.ones(8))
    parameter.grad = torch.full((8,), 3e38)
    MirrorDescent([parameter], lr=1e-38, p=2.0, nonfinite="raise").step()
    torch.testing.assert_close(parameter.detach(), torch.full((8,), -2.0))


@pytest.mark.parametrize(("optimizer_class", "axis"), [(RowDescent, 1), (ColumnDescent, 0)])
def test_lines_far_below_the_largest_one_step_as_far(optimizer_class, axis):
    parameter, sizes = torch.nn.Parameter(torch.zeros(8, 8)), 10.0 ** -torch.linspace(0, 34, 8)
    parameter.grad = torch.rand(8, 8).add(0.5) * sizes.unsqueeze(axis)
    optimizer_class([parameter], lr=1.0).step()
    torch.testing.assert_close(parameter.detach().norm(dim=axis), torch.ones(8))


def test_named_parameters_are_named_and_unchecked_gradients_go_through():
    network = torch.nn.Linear(3, 2)
    network.weight.grad = torch.full((2, 3), float("nan"))
    network.bias.grad = torch.zeros(2)
    with pytest.raises(NonFiniteGradientError, match="'weight'"):
        MirrorDescent(network.named_parameters(), lr=0.1, nonfinite="raise").step()
    MirrorDescent(network.named_parameters(), lr=0.1, nonfinite="unchecked").step()
    assert network.weight.isnan().all()
    assert network.bias.isfinite().all()


@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_sparse_gradients_and_complex_parameters_are_refused(optimizer_class):
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    dense = torch.nn.Parameter(torch.ones(3))
    optimizer = optimizer_class([dense, embedding.weight], lr=0.1)
    (embedding(torch.tensor([1, 2])).sum() + dense.sum()).backward()
    with pytest.raises(RuntimeError, match=r"only dense gradients.*sparse=False"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3))
    with pytest.raises(ValueError, match="complex64"):
        optimizer_class([torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"normalize": True}, {"normalize": True, "scope": "all"}])
def test_absent_gradients_are_left_out_and_odd_shapes_are_stepped(options):
    still, moving, single, scalar, empty, zeros = parameters = [
        torch.nn.Parameter(x)
        for x in (torch.ones(3), torch.ones(3), torch.ones(1), torch.tensor(1.0), torch.ones(0, 4), torch.zeros(2))
    ]
    optimizer = MirrorDescent(parameters, lr=0.1, p=1.5, momentum=0.9, **options)
    for parameter in parameters[1:]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert torch.equal(still, torch.ones(3))
    assert still not in optimizer.state
    assert empty.shape == (0, 4)
    for parameter in (moving, single, scalar):
        assert (parameter < 1).all()
    assert (zeros < 0).all()  # a weight of exactly zero is no trap


def test_without_any_gradient_nothing_happens():
    weights = torch.nn.Parameter(torch.ones(3))
    optimizer = MirrorDescent([weights], lr=0.1, normalize=True, scope="all")
    optimizer.step()
    assert torch.equal(weights, torch.ones(3))
    assert not optimizer.state


@pytest.mark.parametrize("unscale_first", [False, True])
@pytest.mark.parametrize("optimizer_class", OPTIMIZERS)
def test_a_gradient_scaler_is_undone_and_its_skips_are_silent(optimizer_class, unscale_first, recwarn):
    torch.manual_seed(4)
    inputs, targets = torch.randn(16, 4), torch.randn(16, 2)
    networks = [torch.nn.Linear(4, 2) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    plain, scaled = (optimizer_class(network.parameters(), lr=0.01, momentum=0.9) for network in networks)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for step in range(6):
        losses = [(network(inputs) - targets).square().mean() for network in networks]
        overflows = step == 2
        if not overflows:
            plain.zero_grad()
            losses[0].backward()
            plain.step()
        scaled.zero_grad()
        scaler.scale(losses[1]).backward()
        if overflows:
            networks[1].weight.grad[0, 0] = float("inf")
        if unscale_first:
            scaler.unscale_(scaled)
        scaler.step(scaled)
        scaler.update()
    assert scaled.skipped_steps == 1
    assert scaler.get_scale() == 2.0**15
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    assert not [warning for warning in recwarn if "step skipped" in str(warning.message)]


def test_float16_gradients_keep_what_unscaling_in_place_would_lose():
    # 2^-30 is below float16; scaled by 2^20 it is not
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = MirrorDescent([parameter], lr=1.0, p=1.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    scaler.scale((parameter.float() * 2.0**-30).sum()).backward()
    scaler.step(optimizer)
    torch.testing.assert_close(optimizer.state[parameter]["mirror"], torch.full((3,), 1.0 - 2.0**-30))
    assert scaler.get_scale() == 2.0**20


@pytest.mark.parametrize("shapes", [((), (1,)), ((1,), ()), ((1,), (1,))])
def test_a_scale_may_have_one_axis(shapes):
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = MirrorDescent([parameter], lr=1.0, p=2.0)
    optimizer.found_inf, optimizer.grad_scale = torch.zeros(shapes[0]), torch.full(shapes[1], 8.0)
    parameter.grad = torch.full((3,), 2.0)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((3,), 0.75))


@pytest.mark.parametrize("policy", ["skip", "raise", "unchecked"])
def test_a_group_says_what_its_own_gradients_do(policy):
    one, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = MirrorDescent([{"params": [one], "nonfinite": policy}, {"params": [other]}], lr=0.1, nonfinite="raise")
    one.grad, other.grad = torch.tensor([1.0, float("nan")]), torch.ones(2)
    if policy == "raise":
        with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 0"):
            optimizer.step()
    elif policy == "skip":
        with pytest.warns(RuntimeWarning, match="parameter 0 of group 0") as caught:
            optimizer.step()
        assert (caught[0].filename, optimizer.skipped_steps) == (__file__, 1)
        assert torch.equal(other, torch.ones(2))
    else:
        optimizer.step()
        assert one.isnan().any()
        assert (other < 1).all()
    other.grad[0] = float("inf")
    with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 1"):
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "nesterov": True}, {"foreach": True, "weight_decay": 0.1}])
@pytest.mark.parametrize(
    ("p", "large", "dtype"),
    [
        (1.5, 1e25, torch.float32),
        (1.1, 1e10, torch.float32),
        (1.5, 1e25, torch.bfloat16),
        (1.5, 1e5, torch.float64),
        (1.5, 1e160, torch.float64),
        (1.1, 1e40, torch.float64),
    ],
)
def test_a_finite_gradient_that_makes_weights_infinite_leaves_everything_as_it_was(p, large, dtype, options):
    parameters = [torch.nn.Parameter(torch.ones(n, dtype=dtype)) for n in (4, 3)]
    optimizer = MirrorDescent(parameters, lr=1e-2, p=p, **options)
    for stepped_before in (False, True):
        before = snapshot(parameters, optimizer)
        parameters[0].grad, parameters[1].grad = torch.ones(4, dtype=dtype), torch.full((3,), large, dtype=dtype)
        if large == 1e5:  # not too large for float64
            optimizer.step()
            assert all(x.isfinite().all() for x in parameters)
            return
        with pytest.warns(RuntimeWarning, match="new weights or state of parameter 1 of group 0 would not") as caught:
            optimizer.step()
        assert caught[0].filename == __file__
        assert_untouched(parameters, optimizer, before)
        assert len(optimizer.state_dict()["state"]) == (2 if stepped_before else 0)
        optimizer.nonfinite = "raise"
        with pytest.raises(NonFiniteGradientError, match="would not be finite"):
            optimizer.step()
        assert_untouched(parameters, optimizer, before)
        optimizer.nonfinite = "skip"
        # the step after it is that of an optimizer that has seen no such gradient
        others = [torch.nn.Parameter(x.detach().clone()) for x in parameters]
        other = MirrorDescent(others, lr=1e-2, p=p, **options)
        other.load_state_dict(optimizer.state_dict())
        for x in [*parameters, *others]:
            x.grad = torch.ones_like(x)
        optimizer.step()
        other.step()
        assert all(torch.equal(x, y) and (x < 1).all() for x, y in zip(parameters, others, strict=True))
    assert optimizer.skipped_steps == 2


def test_weights_that_would_grow_to_infinity_in_many_steps_stay_finite():
    # z = 1 + 1e3·t, and w = z^10 overflows where z exceeds 7131
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = MirrorDescent([parameter], lr=1.0, p=1.1, nonfinite="raise")
    parameter.grad = torch.full((2,), -1e3)
    for _ in range(7):
        optimizer.step()
    with pytest.raises(NonFiniteGradientError, match="would not be finite"):
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((2,), 7001.0**10))


@pytest.mark.parametrize("optimizer_class", [SignDescent, SpectralDescent, partial(MirrorDescent, p=3.0)])
def test_momentum_of_finite_gradients_does_not_become_infinite(optimizer_class):
    parameter = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = optimizer_class([parameter], lr=1e-3, momentum=0.9)
    parameter.grad = torch.full((2, 2), 3e38)
    optimizer.step()
    before = snapshot([parameter], optimizer)
    with pytest.warns(RuntimeWarning, match="would not be finite"):
        optimizer.step()
    assert_untouched([parameter], optimizer, before)
