"""What the PyTorch tests share: seeds, and one thread each, for the tests themselves run side by side."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    pytest.importorskip("torch").set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    pytest.importorskip("torch").manual_seed(0)
