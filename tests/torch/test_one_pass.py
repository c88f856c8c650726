"""Norms of gradients in one pass over memory, and the steps that use them."""

import shutil
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import (  # noqa: E402
    MirrorDescent,
    fused,
    norms,
    optimizer,
)

pytestmark = [
    pytest.mark.skipif(
        not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="compiled steps need a C++ compiler"
    ),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def small_kernels():
    """Kernels that take short tensors, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norms, "SHORTEST_ROW", 16)
        patch.setattr(optimizer, "LARGEST_JOINED", 40)
        fused.kernel.cache_clear()
        yield
        fused.kernel.cache_clear()


def test_norms_in_one_pass_are_those_in_float64_whatever_was_known_before(small_kernels):
    q, generator = 3.0, torch.Generator().manual_seed(0)
    normal = torch.randn(4, 40, generator=generator)
    one_entry = torch.zeros(80)
    one_entry[77] = -3e-20
    tensors = [normal, 1e-6 * normal, 1e30 * normal, one_entry, normal**9, 1e-40 * normal.double().float()]
    finite = [10 * (scale - 2) for scale in range(6)]
    for guesses in ([None] * 6, [0] * 6, finite):
        found = norms.power_sums_in_one_pass([norms.Direction(x, 1.0) for x in tensors], guesses, q)
        for tensor, one in zip(tensors[:5], found[:5], strict=True):
            assert one.divisor * one.total ** (1 / q) == pytest.approx(tensor.double().norm(q).item(), rel=1e-6)
        assert found[5] is None, "no power of two has a finite reciprocal there"
    # divisors are powers of two, so another guess gives the same digits
    near, known = norms.power_sums_in_one_pass([norms.Direction(normal, 1.0)] * 2, (4, None), q)
    assert near.divisor != known.divisor
    assert near.total * (near.divisor / known.divisor) ** q == known.total
    spoiled = [normal.clone() for _ in range(3)]
    spoiled[0][3, 7], spoiled[1][0, 0] = torch.inf, torch.nan
    spoiled[2].zero_()
    directions = [norms.Direction(x, 1.0) for x in spoiled]
    assert norms.power_sums_in_one_pass(directions, (2, None, 2), q) == [None] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"scope": "each"},
        {"scope": "all"},
        {"scope": "each", "momentum": 0.95},
        {"scope": "all", "momentum": 0.9, "nesterov": True, "maximize": True},
    ],
    ids=str,
)
def test_normalised_steps_are_the_same_in_one_pass(small_kernels, options):
    runs = []
    for kernels in (False, True):
        generator = torch.Generator().manual_seed(1)
        shapes = [(4, 40), (64,), (5,), (8, 33), (64,)]
        parameters = [torch.nn.Parameter(0.1 * torch.randn(shape, generator=generator)) for shape in shapes]
        optimizer = MirrorDescent(parameters, lr=0.01, p=1.5, normalize=True, compiled=kernels, **options)
        for scale in (1.0, 2.0, 1e12, 0.0, 1e-15, torch.inf, 1.0):
            for parameter in parameters:
                parameter.grad = torch.randn(parameter.shape, generator=generator)
                parameter.grad.mul_(scale) if scale < torch.inf else parameter.grad.view(-1)[3].fill_(scale)
            with pytest.warns(RuntimeWarning, match="'?parameter 0") if scale == torch.inf else nullcontext():
                optimizer.step()
        assert optimizer.skipped_steps == 1
        runs.append(parameters)
    for eager, compiled in zip(*runs, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=2e-6, atol=1e-8)
