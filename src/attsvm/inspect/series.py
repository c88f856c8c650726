"""Inspections of two models, or of checkpoints in order, on the same batch, and what changed between them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.inspect.comparison import Comparison, HeadChange, compare
from attsvm.inspect.inspection import inspect
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.result import Inspection
from attsvm.inspect.saved_models import ShowProgress, part_for
from attsvm.pretrained import Input, checkpoints, has_tokenizer, load_model, read_input, read_texts


@dataclass(frozen=True, eq=False)
class Series:
    """At least two inspections of the same heads, in order."""

    names: list[str]
    steps: list[int] | None  # the training step of each; None if they are not checkpoints of one training
    inspections: list[Inspection]
    total: Comparison  # of the first with the last
    # since_first, since_previous: share of changed selections of a head in each later model; NaN where that model lacks
    # the head
    since_first: dict[tuple[int, int], Float[np.ndarray, " later"]]
    since_previous: dict[tuple[int, int], Float[np.ndarray, " later"]]

    @classmethod
    def of(cls, names: list[str], steps: list[int] | None, inspections: list[Inspection]) -> "Series":
        """Compare inspections.

        Raises
        ------
        ProblemError
            If there are fewer than two, or they cannot be compared.
        """
        if len(inspections) < 2:
            raise ProblemError(f"inspections: expected at least two, got {len(inspections)}")
        first, *later = inspections
        from_first = [compare(first, one) for one in later]
        steps_between = [compare(one, other) for one, other in pairwise(inspections)]
        return cls(names, steps, inspections, from_first[-1], _shares(from_first), _shares(steps_between))

    @property
    def places(self) -> list[int]:
        """Where each model is on an axis: its step, or its number."""
        return self.steps or list(range(1, 1 + len(self.names)))

    @property
    def ends(self) -> tuple[Inspection, Inspection]:
        """The first and the last inspection."""
        return self.inspections[0], self.inspections[-1]

    @property
    def moved(self) -> list[HeadChange]:
        """The heads whose margin ratio certainly moved from the first to the last."""
        return [one for one in self.total.heads if one.margin_moved]


def _shares(comparisons: list[Comparison]) -> dict[tuple[int, int], Float[np.ndarray, " later"]]:
    found = [{(one.layer, one.head): one.changed for one in each.heads} for each in comparisons]
    return {head: np.array([each.get(head, np.nan) for each in found]) for head in found[-1]}


def training_order(models: Iterable[str]) -> tuple[list[str], list[int] | None]:
    """The models in the order of their training steps, and these steps; as given with None if they have none.

    Models have steps if they are three or more folders beside each other whose names differ only in the number at the
    end. Two models keep their order.

    Examples
    --------
    >>> from attsvm.inspect.series import training_order
    >>> training_order(["runs/checkpoint-1000", "runs/checkpoint-200", "runs/checkpoint-50"])
    (['runs/checkpoint-50', 'runs/checkpoint-200', 'runs/checkpoint-1000'], [50, 200, 1000])
    >>> training_order(["bert-2", "gpt-1", "bert-1"])
    (['bert-2', 'gpt-1', 'bert-1'], None)
    """
    given = list(models)
    found = [re.fullmatch(r"(.*?)(\d+)", str(Path(name))) for name in given]
    stems = {match[1] for match in found if match}
    if len(given) < 3 or None in found or len(stems) > 1:
        return given, None
    by_step = sorted((int(match[2]), name) for match, name in zip(found, given, strict=True) if match)
    return [name for _, name in by_step], [step for step, _ in by_step]


def inspect_series(
    models: Sequence[str],
    text: Path | None,
    images: Path | None,
    *,
    sentence: int | None = None,
    shown: ShowProgress,
    as_text: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[Series, list[list[str]]]:
    """Inspect several models, or the checkpoints in a folder, on the same text or pictures.

    ``models``: folders, or names on the hub; a single one is a folder with checkpoints. Three or more checkpoints of
    one training are put into the order of their steps. The tokens are those of the first model that has a tokenizer.
    ``sentence``: the number of a sequence, from 0 on, which must exist. ``shown``: shows the progress.
    ``as_text``: how texts are read, as for :meth:`SavedModel.load`. ``options``: of :func:`attsvm.inspect.inspect`.

    Returns the inspections, and the tokens of each sequence. Raises ProblemError if a model cannot be inspected, or the
    tokenizers of two models disagree.
    """
    names, steps = training_order(models)
    part = part_for(text, images)
    if len(models) == 1:
        found = checkpoints(models[0])
        names, steps = [str(path) for _, path in found], [step for step, _ in found]
    texts = [] if text is None else read_texts(text)
    family = options.get("family")
    numbered = list(enumerate(names))
    leader = next((k for k, name in numbered if images is not None or has_tokenizer(name)), 0)
    network = load_model(names[leader], pictures=part)
    as_text = as_text or {}
    given = read_input(names[leader], network, texts, images, **as_text)
    if sentence is not None and sentence >= len(given.tokens):
        raise ProblemError(f"--sentence: expected a number from 0 to {len(given.tokens) - 1}, got {sentence}")
    # all models are checked before anything is computed; the first and the last one, which are drawn, stay in memory
    ends: dict[int, nn.Module] = {}
    for k, name in numbered:
        one = network if k == leader else load_model(name, pictures=part)
        if texts and k != leader and has_tokenizer(name):
            _check_same(names[leader], given, name, read_input(name, one, texts, images, **as_text))
        attention_layers(one, family)  # refuses models without a known one
        if k in (0, len(names) - 1):
            ends[k] = one

    def inspections() -> Iterator[Inspection]:
        for k, name in numbered:
            model = ends.get(k) or load_model(name, pictures=part)
            with shown(Path(name).name, lambda _: None) as callback:
                inspection = inspect(model, given.batch, callback=callback, **options)
            yield inspection if k in ends else replace(inspection, source=None)

    return Series.of(names, steps, list(inspections())), given.tokens


def _check_same(leader: str, given: Input, name: str, other: Input) -> None:
    """Check that two tokenizers agree, because otherwise selections cannot be compared."""
    one, two = given.batch["input_ids"], other.batch["input_ids"]
    if one.shape != two.shape or bool((one != two).any()):
        raise ProblemError(f"{name}: its tokenizer gives other tokens for this text than that of {leader}")
