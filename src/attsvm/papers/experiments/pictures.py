"""CIFAR-10 as rows of bytes, and the random changes of pictures in training."""

import io
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attsvm._utils.files import reading
from attsvm.errors import ProblemError
from attsvm.papers.experiments.tables import TaskRows, load_rows

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHIFT = 4
"""Largest number of pixels by which a picture is shifted."""


def load_pictures(source: str, **rows: Any) -> tuple[TaskRows, TaskRows]:
    """Read pictures (n, 3, height, width) of bytes to train on and to test on.

    ``source``: columns ``img`` (encoded pictures) and ``label``. ``rows``: as for
    :func:`attsvm.papers.experiments.tables.load_rows`.

    Raises ProblemError if the data cannot be read, pictures are not of one size, or there are more than ten classes.
    """
    return load_rows(source, "img", len(CLASSES), partial(_decoded, source), **rows)


def varied(pictures: Tensor) -> Tensor:
    """Pictures flipped and shifted at random, with PyTorch's generator."""
    n, _, height, width = pictures.shape
    flipped = torch.where((torch.rand(n) < 0.5).to(pictures.device)[:, None, None, None], pictures.flip(-1), pictures)
    # padding is not implemented for bytes
    padded = functional.pad(flipped.float(), (SHIFT,) * 4, mode="reflect").to(pictures.dtype)
    down, right = torch.randint(0, 2 * SHIFT + 1, (2, n, 1)).to(pictures.device)
    rows = (down + torch.arange(height, device=pictures.device))[:, None, :, None]
    columns = (right + torch.arange(width, device=pictures.device))[:, None, None, :]
    which = torch.arange(n, device=pictures.device)[:, None, None, None]
    colours = torch.arange(3, device=pictures.device)[None, :, None, None]
    return padded[which, colours, rows, columns]


def _decoded(source: str, found: list[Any]) -> Tensor:
    from PIL import Image

    pictures = []
    for number, entry in enumerate(found):
        content: Any = entry.get("bytes") if isinstance(entry, dict) else entry
        with reading(source, f"row {number}, counted from 0, is not a readable picture"):
            pictures.append(np.asarray(Image.open(io.BytesIO(content)).convert("RGB")))
        if pictures[-1].shape != pictures[0].shape:
            raise ProblemError(
                f"{source}: expected pictures of one size, got {pictures[0].shape} and {pictures[-1].shape}"
            )
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
