"""On a GPU, where there is one: the formula, kernels made for it, and a norm over devices."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm.torch import MirrorDescent  # noqa: E402
from oracles.torch_steps import MirrorFormula, assert_follows  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("engine", [{}, {"foreach": False}, {"compiled": True}], ids=str)
@pytest.mark.parametrize(
    "options", [{"p": 1.1}, {"p": 1.75, "normalize": True}, {"p": 3.0, "normalize": True, "scope": "all"}], ids=str
)
def test_steps_follow_the_formula(options, engine):
    where = {"tolerance": 1e-11, "device": "cuda", "engine": engine}
    assert_follows(MirrorDescent, MirrorFormula, np.random.default_rng(8), lr=0.02, momentum=0.9, **where, **options)


def test_one_norm_spans_devices():
    parameters = [torch.nn.Parameter(torch.ones(4, device=device)) for device in ("cpu", "cuda")]
    optimizer = MirrorDescent(parameters, lr=0.1, p=2.0, normalize=True, scope="all")
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for parameter in parameters:
        torch.testing.assert_close(parameter.cpu(), torch.full((4,), 1.0 - 0.1 / 8**0.5))
