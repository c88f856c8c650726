"""The attention of texts over the steps of a fit."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from attsvm.apps.texts.result import TextFit
from attsvm.estimator.forward import forward


def recorded_attention(fit: TextFit, rows: Sequence[int]) -> tuple[list[int], list[Float[np.ndarray, "R T"]]]:
    """The attention that some test texts had at recorded steps, up to the step whose parameters are kept.

    ``rows``: numbers of test texts.

    Returns ``steps`` (R steps; the last one is the kept step) and ``attention`` (of each text, for its T words).
    """
    path, texts = fit.classifier.path_, fit.test.sequences[np.asarray(rows, dtype=int)]
    of_all = [forward(model, texts).attention for model in path.values()]
    return list(path), np.split(np.array(of_all), texts.offsets[1:-1], axis=1)
