"""On a GPU, where there is one: the formula, kernels made for it, and a norm over devices."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent  # noqa: E402
from oracles.torch_steps import Formula, assert_follows  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"compiled": True}], ids=str)
@pytest.mark.parametrize(("p", "normalize"), [(1.1, None), (1.75, "each"), (3.0, "all")])
def test_steps_follow_the_formula(p, normalize, options):
    assert_follows(
        [lambda start: Formula(start, 0.02, p, normalize=normalize, momentum=0.9)],
        lambda groups: MirrorDescent(
            groups[0],
            lr=0.02,
            p=p,
            normalize=normalize is not None,
            scope=normalize or "each",
            momentum=0.9,
            **options,
        ),
        np.random.default_rng(8),
        tolerance=1e-11,
        device="cuda",
    )


def test_one_norm_spans_devices():
    parameters = [torch.nn.Parameter(torch.ones(4, device=device)) for device in ("cpu", "cuda")]
    optimizer = MirrorDescent(parameters, lr=0.1, p=2.0, normalize=True, scope="all")
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in parameters:
        torch.testing.assert_close(parameter.cpu(), torch.full((4,), 1.0 - 0.1 / 8**0.5))
