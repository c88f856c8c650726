"""The share of training sequences whose attention selects a token without signal."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from attsvm.errors import ProblemError
from attsvm.sweeps.block import Block
from attsvm.sweeps.format import Output
from attsvm.sweeps.measure import Measure


class NoiseSelected(Measure):
    """The share of noise tokens among the selected ones, of all sequences and of those with a flipped label."""

    name = "noise_selected"
    outputs: ClassVar[Mapping[str, Output]] = {
        "noise_selected": Output("share of noise tokens selected"),
        "noise_selected_flipped": Output("share of noise tokens selected, flipped labels", partial=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Look up the selected tokens; without flipped labels their share is missing."""
        extras = block.drawn.extras
        if not {"flipped", "noise_tokens"} <= set(extras):
            raise ProblemError("noise_selected: expected a source with flipped labels and noise tokens, as 'noise'")
        noise = np.take_along_axis(extras["noise_tokens"], block.run.selected, axis=-1)
        flipped = extras["flipped"]
        number = flipped.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            of_flipped = (noise & flipped).sum(axis=-1) / number
        return {"noise_selected": noise.mean(axis=-1), "noise_selected_flipped": of_flipped}
