"""The compiled step: the same numbers as the eager one, and no compilation but the first."""

import shutil
from contextlib import nullcontext

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import (  # noqa: E402
    MirrorDescent,
    SignDescent,
    SpectralDescent,
    fused,
)
from oracles.torch_steps import MirrorFormula, SignFormula, assert_follows  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="compiled steps need a C++ compiler"
    ),
    pytest.mark.slow,
]


@pytest.mark.parametrize(
    "options",
    [{"p": 1.1, "momentum": 0.9}, {"p": 1.75, "normalize": True}, {"p": 3.0, "normalize": True, "scope": "all"}],
    ids=str,
)
def test_compiled_steps_follow_the_formula(options):
    rng, engine = np.random.default_rng(4), {"compiled": True}
    assert_follows(MirrorDescent, MirrorFormula, rng, lr=0.02, weight_decay=0.1, engine=engine, **options)


def test_compiled_sign_descent_follows_its_formula():
    rng, engine = np.random.default_rng(5), {"compiled": True}
    options = {"lr": 0.01, "momentum": 0.9, "weight_decay": 0.1}
    assert_follows(SignDescent, SignFormula, rng, tolerance=1e-13, engine=engine, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_and_eager_steps_agree_and_neither_shapes_nor_missing_gradients_compile_again(dtype):
    shapes = [(300, 7), (5,), (1,), (), (0,), (40, 3), (2, 3, 4), (64,), (9, 9), (33,), (12, 2)]
    runs = []
    for kernels in (False, True):
        torch.manual_seed(1)
        parameters = [torch.nn.Parameter(0.1 * torch.randn(shape).to(dtype)) for shape in shapes]
        parameters.append(torch.nn.Parameter(0.1 * torch.randn(6, 4).to(dtype).t()))  # not contiguous
        optimizer = MirrorDescent(parameters, lr=0.01, p=1.5, momentum=0.9, nesterov=True, compiled=kernels)
        for step in range(4):
            for i, parameter in enumerate(parameters):
                parameter.grad = torch.randn_like(parameter) if (i + step) % 3 else None
            with torch.compiler.set_stance("fail_on_recompile") if step else nullcontext():
                optimizer.step()
        runs.append(parameters)
    for eager, kernel in zip(*runs, strict=True):
        torch.testing.assert_close(kernel, eager, rtol=1e-6 if dtype == torch.float32 else 1e-2, atol=1e-8)


def test_large_groups_are_compiled_by_default_and_take_eager_steps_where_that_fails(monkeypatch):
    def steps(**options):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, fused.FEWEST_ENTRIES))
        optimizer = MirrorDescent([parameter], lr=0.01, p=1.5, **options)
        for _ in range(2):
            parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        return parameter.detach()

    def refuse(*_, **__):
        raise RuntimeError("no compiler\nand more")

    eager = steps(compiled=False)
    kernels = []
    monkeypatch.setattr("attsvm.torch.steps.kernel", lambda *key: kernels.append(key) or refuse())
    fused.compiler_works.cache_clear()
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with pytest.raises(RuntimeError, match="no compiler"):  # of the kernel, so there is one
        steps()
    assert len(kernels) == 1
    fused.compiler_works.cache_clear()
    monkeypatch.setattr(torch, "compile", refuse)
    with pytest.warns(RuntimeWarning, match=r"steps on cpu are slower.*\(no compiler\)") as seen:
        torch.testing.assert_close(steps(), eager, rtol=0, atol=0)
    assert len(seen) == 1
    monkeypatch.setattr(fused, "FEWEST_ENTRIES", fused.FEWEST_ENTRIES + 1)
    fused.compiler_works.cache_clear()
    parameter = torch.nn.Parameter(torch.linspace(-1, 1, fused.FEWEST_ENTRIES - 1))
    parameter.grad = torch.ones_like(parameter)
    MirrorDescent([parameter], lr=0.01).step()  # no warning: nothing is compiled for a smaller group
    fused.compiler_works.cache_clear()
    with pytest.raises(ValueError, match="compiled: expected True, False or None, got 'yes'"):
        MirrorDescent([parameter], lr=0.01, compiled="yes")


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: MirrorDescent(parameters, lr=0.01, p=1.5, momentum=0.9),
        lambda parameters: MirrorDescent(parameters, lr=0.01, normalize=True, scope="all"),
        lambda parameters: SignDescent(parameters, lr=0.01, momentum=0.9),
        lambda parameters: SpectralDescent(parameters, lr=0.01, momentum=0.9),
    ],
)
def test_a_step_inside_torch_compile_is_the_step(make):
    # tensors of different shapes: torch.compile took the mirror variable of the first for that of all
    runs = []
    for wrap in (lambda step: step, torch.compile):
        generator = torch.Generator().manual_seed(2)
        parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in [(5, 7), (5,), (3, 5)]]
        optimizer = make(parameters)
        step = wrap(optimizer.step)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
            step()
        runs.append(parameters)
    for plain, inside in zip(*runs, strict=True):
        assert torch.equal(plain, inside)


def stepped(parameters, change=lambda step: None, steps=4, **options):
    """The parameters and their momentum after steps, the eager ones and the compiled ones."""
    runs = []
    for kernels in (False, True):
        generator = torch.Generator().manual_seed(2)
        own = parameters()
        optimizer = MirrorDescent(own, lr=0.01, compiled=kernels, **options)
        for step in range(steps):
            change(step)
            for parameter in own:
                parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            optimizer.step()
        runs.append([*own, *(x for parameter in own for x in optimizer.state[parameter].values())])
    for eager, kernel in zip(*runs, strict=True):
        torch.testing.assert_close(kernel, eager, rtol=2e-6, atol=1e-7)


def test_kernels_do_not_depend_on_the_default_dtype():
    def change(step):
        torch.set_default_dtype(torch.float64 if step % 2 else torch.float32)

    parameter = torch.linspace(-1, 1, 1 << 15, dtype=torch.float32)
    try:
        options = {"p": 1.5, "normalize": True, "momentum": 0.9}
        stepped(lambda: [torch.nn.Parameter(parameter.clone())], change, **options)
    finally:
        torch.set_default_dtype(torch.float32)


def test_normalised_steps_where_weights_are_not_contiguous_and_gradients_are():
    def parameters():
        some = torch.linspace(-1, 1, 300 * 600).view(300, 600)
        return [torch.nn.Parameter(x.clone()[:, ::2]) for x in (some[:256, :512], some[:181, :362])]

    stepped(parameters, p=1.5, normalize=True)


def test_states_of_two_dtypes_are_not_mixed():
    """A model may be converted after some of its parameters have a momentum."""
    runs = []
    for kernels in (False, True):
        generator = torch.Generator().manual_seed(3)
        parameters = [torch.nn.Parameter(torch.randn(150, 150, generator=generator)) for _ in range(2)]
        optimizer = MirrorDescent(parameters, lr=0.01, p=2.0, momentum=0.9, compiled=kernels)
        for step in range(4):
            if step == 2:
                for parameter in parameters:
                    parameter.grad, parameter.data = None, parameter.data.double()
            for parameter in parameters if step > 1 else parameters[1:]:
                parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            optimizer.step()
        runs.append([*parameters, *(optimizer.state[x]["momentum_buffer"] for x in parameters)])
    assert [x.dtype for x in runs[1][2:]] == [torch.float64, torch.float32]
    for eager, kernel in zip(*runs, strict=True):
        torch.testing.assert_close(kernel, eager, rtol=1e-6, atol=1e-6)


def test_a_weight_that_is_its_own_gradient_does_not_change_later_steps():
    runs = []
    for kernels in (False, True):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 4999))
        optimizer = MirrorDescent([parameter], lr=0.1, p=2.0, compiled=kernels)
        for gradient in (parameter.detach(), torch.ones(4999)):
            parameter.grad = gradient
            optimizer.step()
        runs.append(parameter)
    torch.testing.assert_close(*runs)


@pytest.mark.long
def test_kernels_are_those_of_torch_compile_where_its_internals_differ(monkeypatch):
    def fails(self, graph, examples):
        raise TypeError("no such argument")

    monkeypatch.setattr(fused._Direct, "_compile", fails)
    fused.kernel.cache_clear()
    try:
        stepped(lambda: [torch.nn.Parameter(torch.linspace(-1, 1, 4998))], lambda step: None, p=1.3)
    finally:
        fused.kernel.cache_clear()
