"""Powers by cube roots, against mpmath."""

import mpmath
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attsvm[torch]'")
from attsvm._utils.powers import signed_power  # noqa: E402
from attsvm.torch.steps import POWERS_BY_CUBE_ROOTS  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("thirds", [1, 2, 4, 7])
def test_powers_of_thirds_are_exact_to_four_ulp(dtype, thirds):
    limits = torch.finfo(dtype)
    span = -np.log10(limits.tiny) * min(1.0, 3 / thirds) * 0.99  # so that neither x nor the power is subnormal
    x = torch.logspace(-span, 2, 500, dtype=torch.float64).to(dtype)
    found = signed_power(-x, thirds / 3, POWERS_BY_CUBE_ROOTS)
    with mpmath.workdps(40):
        for entry, power in zip(x.tolist(), found.tolist(), strict=True):
            exact = mpmath.cbrt(entry) ** thirds
            # at most 2.4 were measured; torch.pow in float32 is off by 22, since it rounds the exponent
            assert abs(-power - exact) <= 4 * limits.eps * exact


def test_powers_of_thirds_keep_zeros_infinities_and_nans():
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan")])
    found = signed_power(x, 4 / 3, POWERS_BY_CUBE_ROOTS)
    torch.testing.assert_close(found, x, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit()[:4], x.signbit()[:4])
