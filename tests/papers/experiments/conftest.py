"""Fixtures of the tests of experiments: a seed, and one thread for PyTorch, because the tests run side by side."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch (extra `torch`) is not installed")


@pytest.fixture(autouse=True)
def one_thread_and_a_seed():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
