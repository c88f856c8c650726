"""The random numbers of a run, all derived from its seed."""

import random

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, NumPy and PyTorch, and those of every GPU."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (other packages draw from it)
    torch.manual_seed(seed)


def data_order(rows: int, seed: int, epoch: int) -> Tensor:
    """A permutation of the rows that depends on the seed and the epoch only."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(rows))
