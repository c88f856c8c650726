"""What an optimiser carries from step to step: saved, loaded, copied, pickled, and kept where weights cannot."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent, SignDescent, SpectralDescent  # noqa: E402

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def model(dtype=torch.float32):
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).to(dtype)


def take_steps(network, optimizer, steps, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for parameter in network.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        optimizer.step()


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def assert_same_bits(one, other):
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


MAKERS = {
    "p1.1": lambda params: MirrorDescent(params, lr=1e-2, momentum=0.9),
    "p1.75 normalised": lambda params: MirrorDescent(params, lr=1e-2, p=1.75, normalize=True, weight_decay=0.1),
    "p2": lambda params: MirrorDescent(params, lr=1e-2, p=2.0),
    "p3": lambda params: MirrorDescent(params, lr=1e-2, p=3.0, momentum=0.5, nesterov=True),
    "sign": lambda params: SignDescent(params, lr=1e-2, momentum=0.9),
    "spectral": lambda params: SpectralDescent(params, lr=1e-2, momentum=0.9),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_resumed_run_ends_with_the_same_bits(make, dtype):
    whole, first, second = model(dtype), model(dtype), model(dtype)
    optimizer = make(whole.parameters())
    take_steps(whole, optimizer, 7, seed=1)
    take_steps(whole, optimizer, 7, seed=2)

    interrupted = make(first.parameters())
    take_steps(first, interrupted, 7, seed=1)
    saved = through_a_file({"model": first.state_dict(), "optimizer": interrupted.state_dict()})

    resumed = make(second.parameters())
    take_steps(second, resumed, 2, seed=9)  # as when one tries something before loading
    second.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    take_steps(second, resumed, 7, seed=2)
    assert_same_bits(whole, second)


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_copy_goes_on_by_itself_as_the_original_does(make, clone):
    network = model()
    optimizer = make(network.parameters())
    take_steps(network, optimizer, 5, seed=1)
    copied_network, copied_optimizer = clone((network, optimizer))
    before = [parameter.clone() for parameter in copied_network.parameters()]
    take_steps(network, optimizer, 5, seed=2)
    for parameter, value in zip(copied_network.parameters(), before, strict=True):
        assert torch.equal(parameter, value)
    take_steps(copied_network, copied_optimizer, 5, seed=2)
    assert_same_bits(network, copied_network)
    copied_optimizer.load_state_dict(optimizer.state_dict())
    assert copied_optimizer.nonfinite == optimizer.nonfinite


def test_a_state_that_was_saved_before_spectral_steps_had_a_dtype_is_loaded():
    weight = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = SpectralDescent([weight], lr=0.1, iterations=5)
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["dtype"]
    optimizer.load_state_dict(through_a_file(saved))
    weight.grad = torch.linspace(-1, 1, 12).reshape(3, 4)
    other = torch.nn.Parameter(torch.ones(3, 4))
    other.grad = weight.grad.clone()
    optimizer.step()
    SpectralDescent([other], lr=0.1, iterations=5).step()
    assert torch.equal(weight, other)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mirror_variable_is_held_in_float32_at_least(dtype):
    network = model(dtype)
    optimizer = MirrorDescent(network.parameters(), lr=1e-2, p=1.5, momentum=0.9)
    take_steps(network, optimizer, 1, seed=1)
    loaded = MirrorDescent(network.parameters(), lr=1e-2, p=1.5, momentum=0.9)
    loaded.load_state_dict(through_a_file(optimizer.state_dict()))
    for one in (optimizer, loaded):
        for state in one.state.values():
            assert {x.dtype for x in state.values()} == {torch.promote_types(dtype, torch.float32)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("p", [1.5, 1.75, 2.0, 3.0])
def test_narrow_weights_are_the_rounded_weights_of_a_float32_run(dtype, p):
    # steps far below the resolution of the narrow weights, which alone would never move
    narrow = torch.nn.Parameter(torch.linspace(0.5, 1.5, 20).to(dtype))
    wide = torch.nn.Parameter(narrow.detach().float())
    optimizers = [MirrorDescent([parameter], lr=1e-4, p=p) for parameter in (narrow, wide)]
    for _ in range(200):
        narrow.grad = torch.randn(20).to(dtype)
        wide.grad = narrow.grad.float()
        for optimizer in optimizers:
            optimizer.step()
    assert torch.equal(narrow, wide.to(dtype))


def test_a_weight_that_underflows_comes_back():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = MirrorDescent([parameter], lr=1.0, p=1.1)
    for gradient, weight in ((1.0 - 1e-5, 0.0), (-0.5, 0.5**10)):
        parameter.grad = torch.tensor([gradient])
        optimizer.step()
        assert parameter.item() == pytest.approx(weight, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_written_by_others_are_gone_on_from_and_the_rest_keep_their_mirror_variable(dtype):
    parameter = torch.nn.Parameter(torch.tensor([1.0, 1.0, 1.0], dtype=dtype))
    optimizer = MirrorDescent([parameter], lr=1.0, p=1.1)
    parameter.grad = torch.tensor([1.0 - 1e-5, 0.5, 0.0], dtype=dtype)
    optimizer.step()
    small = optimizer.state[parameter]["mirror"][0].item()
    with torch.no_grad():
        parameter[2] = 0.25
    parameter.grad = torch.zeros(3, dtype=dtype)
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.tensor([0.0, 0.5**10, 0.25], dtype=dtype))
    assert optimizer.state[parameter]["mirror"][0].item() == small


def change_in_place(parameter, change):
    change(parameter.data)


def change_by_assignment(parameter, change):
    parameter.data = change(parameter.data.clone())


def change_by_vectors(parameter, change):
    torch.nn.utils.vector_to_parameters(change(parameter.detach().flatten().clone()), [parameter])


def change_in_numpy(parameter, change):
    # integers, because NumPy has no bfloat16
    integers = torch.int32 if parameter.element_size() == 4 else torch.int16
    parameter.detach().view(integers).numpy()[:] = change(parameter.data.clone()).view(integers).numpy()


WAYS = [change_in_place, change_by_assignment, change_by_vectors, change_in_numpy]


@pytest.mark.parametrize("shape", [(20, 30), (150, 200)], ids=["small", "large"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("dtype", "make"),
    [
        (torch.float32, lambda params: MirrorDescent(params, lr=1e-3, p=1.5)),
        (torch.float32, lambda params: MirrorDescent(params, lr=1e-3, p=3.0, nonfinite="unchecked")),
        (torch.bfloat16, lambda params: MirrorDescent(params, lr=1e-3, p=2.0)),
        (torch.bfloat16, lambda params: SignDescent(params, lr=1e-3, momentum=0.9)),
    ],
)
def test_changes_that_torch_does_not_count_are_gone_on_from(way, dtype, make, shape):
    parameters = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for _ in range(3)]
    optimizer = make(parameters)
    for skipped in (False, True, False):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        if skipped:  # a parameter that rests keeps the change for later
            parameters[0].grad = None
        optimizer.step()
        for parameter in parameters:
            way(parameter, lambda x: x.clamp_(-0.05, 0.05))
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter in parameters:
        assert parameter.abs().max() <= 0.0525  # a step of 0.001, rounded


def test_a_step_after_a_change_does_not_overflow():
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = MirrorDescent([parameter], lr=1e-2, p=1.1)
    parameter.grad = torch.ones(4)
    optimizer.step()
    parameter.data.fill_(1e38)
    parameter.grad = -torch.full((4,), 1e5)
    with pytest.warns(RuntimeWarning, match="would not be finite"):
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), torch.full((4,), 1e38))


def test_a_change_of_few_entries_of_a_large_tensor_is_found_in_time():
    parameter = torch.nn.Parameter(torch.ones(1 << 15))
    optimizer = MirrorDescent([parameter], lr=1e-3, p=1.5)
    for _ in range(40):
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        parameter.data[1234] = 0.0
    optimizer.step()
    assert parameter[1234] == 0.0


def test_p_may_change_between_steps():
    parameter = torch.nn.Parameter(torch.tensor([0.5, -2.0], dtype=torch.float64))
    optimizer = MirrorDescent([parameter], lr=0.1, p=1.5)
    for p in (1.5, 3.0, 2.0, 1.25):
        optimizer.param_groups[0]["p"] = p
        before = parameter.detach().clone()
        parameter.grad = torch.tensor([0.3, 0.1], dtype=torch.float64)
        optimizer.step()
        mirror = before.sign() * before.abs() ** (p - 1) - 0.1 * parameter.grad
        torch.testing.assert_close(parameter.detach(), mirror.sign() * mirror.abs() ** (1 / (p - 1)))


def test_hooks_on_loading_see_and_change_what_is_loaded():
    network = model()
    optimizer = MirrorDescent(network.parameters(), lr=1e-2, p=1.5)
    take_steps(network, optimizer, 2, seed=1)
    seen = []

    def halve(_, state):
        halved = copy.deepcopy(state)
        halved["state"][0]["mirror"] *= 0.5
        return halved

    loaded = MirrorDescent(model().parameters(), lr=1e-2, p=1.5)
    loaded.register_load_state_dict_pre_hook(halve)
    loaded.register_load_state_dict_post_hook(lambda one: seen.append(next(iter(one.state.values()))["mirror"].clone()))
    saved = optimizer.state_dict()
    loaded.load_state_dict(saved)
    assert torch.equal(seen[0], 0.5 * saved["state"][0]["mirror"])
