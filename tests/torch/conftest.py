"""What the PyTorch tests share: one thread, and kernels compiled once."""

import pytest


@pytest.fixture(autouse=True)
def seeded():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
