"""Inspections of saved models: one beside its random twin and its checkpoints, or several one after another."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import nn

from attsvm.errors import ProblemError
from attsvm.inspect import inputs
from attsvm.inspect.causal import Heads, Running
from attsvm.inspect.inputs import Input
from attsvm.inspect.inspection import inspect
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.models import checkpoints, load_model, random_twin, tower
from attsvm.inspect.result import HeadProgress, Inspection
from attsvm.inspect.series import Series, training_order
from attsvm.inspect.source import Source
from attsvm.inspect.tested import TestedReason, tested_reasons

TWIN_GAP = 0.1
"""Relative width of the margins' intervals of the twin, unless that of the model is larger: it is only compared."""

TWIN_HEADS = 2
"""Heads of each layer of the twin. With random weights they are interchangeable."""

Shown = Callable[[str, Callable[[Any], object]], AbstractContextManager[Callable[[Any], object]]]
"""Shows the progress of a block: from what is inspected, and a callback, to what shows it and calls the callback."""


class Found(NamedTuple):
    """The inspections of a model, of its randomly initialised twin, and of its checkpoints by training step."""

    done: Inspection
    twin: Inspection | None = None
    steps: tuple[tuple[int, Inspection], ...] = ()
    tests: tuple[TestedReason, ...] = ()  # of the head in detail

    def with_twin(self, twin: Inspection) -> "Found":
        """The same with the randomly initialised twin."""
        return self._replace(twin=twin)

    def with_checkpoint(self, step: int, checkpoint: Inspection) -> "Found":
        """The same with one more checkpoint, once its margins are solved."""
        return self if checkpoint.interrupted else self._replace(steps=(*self.steps, (step, checkpoint)))


@dataclass(frozen=True)
class SavedModel:
    """A saved model, its input, its checkpoints by training step, and other text to test reasons on."""

    network: nn.Module
    given: Input
    series: list[tuple[int, Path]]
    held_out: Source | None

    @classmethod
    def load(
        cls,
        model: str,
        text: Path | None,
        images: Path | None,
        family: str | None = None,
        *,
        checkpoint_folder: Path | None = None,
        held_out: Path | None = None,
    ) -> Self:
        """Load a model from a folder or by its name on the hub, and read its text or pictures.

        Raises ProblemError if something cannot be read, or does not fit the model.
        """
        texts = [] if text is None else inputs.read_texts(text)
        series = [] if checkpoint_folder is None else checkpoints(checkpoint_folder)
        network = _load(model, pictures=images is not None)
        given = _input(model, network, texts, images, family)
        other = None
        if held_out is not None:
            batch = _input(model, network, inputs.read_texts(held_out), None, family).batch
            other = Source.whole(network, batch, attention_layers(network, family))
        return cls(network, given, series, other)

    def inspect(
        self,
        place: tuple[int, int] | None,
        *,
        with_twin: bool,
        shown: Shown,
        keep: Callable[[Found], None],
        say: Callable[[str], None],
        **options: Any,
    ) -> Found:
        """Inspect the model, then its twin and its checkpoints.

        ``place``: the layer and the number of the head in detail. ``with_twin``: inspect the same model with random
        weights, too. ``shown``: shows the progress. ``keep``: called with what is found so far. ``say``: called with
        what a test of the reasons on the held-out text can show. ``options``: of :func:`attsvm.inspect.inspect`.

        Raises ProblemError if there is no such head, or its reasons cannot be tested.
        """
        # a head whose reasons cannot be tested is refused before anything else is computed
        running = None
        if self.held_out is not None and place is not None:
            running = _testable(self.held_out, place, options["seed"], say)

        def inspected(name: str, model: nn.Module, known: Callable[[Inspection], Found], **options: Any) -> Found:
            source: Source | None = None

            def see(at: HeadProgress) -> None:
                nonlocal source
                so_far = at.inspection()
                source = so_far.source
                if len(so_far.heads) == at.steps:  # all are measured
                    keep(known(so_far))

            with shown(name, see) as callback:
                inspection = inspect(model, self.given.batch, callback=callback, **options)
            # the model does not change here, so what was captured of it still holds
            return known(replace(inspection, source=source))

        found = inspected("the model", self.network, Found, view=place, **options)
        explanation = None if found.done.view is None else found.done.view.explanation
        if running is not None and explanation is not None:
            with shown("causal tests", lambda _: None) as callback:
                found = found._replace(tests=tested_reasons(explanation, running, options["seed"], callback))
        if with_twin:
            some = [(head.layer, head.head) for head in found.done.heads if head.head < TWIN_HEADS]
            of_twin = options | {"gap": max(options["gap"], TWIN_GAP), "heads": options["heads"] or some}
            found = inspected("its twin", random_twin(self.network, options["seed"]), found.with_twin, **of_twin)
        for step, path in self.series:
            checkpoint = _load(str(path), pictures="pixel_values" in self.given.batch)
            found = inspected(path.name, checkpoint, partial(found.with_checkpoint, step), **options)
        return found


def inspect_series(
    models: Sequence[str],
    text: Path | None,
    images: Path | None,
    *,
    sentence: int | None = None,
    shown: Shown,
    **options: Any,
) -> tuple[Series, list[list[str]]]:
    """Inspect several models, or the checkpoints in a folder, on the same text or pictures.

    ``models``: folders, or names on the hub; a single one is a folder with checkpoints. Three or more checkpoints of
    one training are put into the order of their steps. The tokens are those of the first model that has a tokenizer.
    ``sentence``: the number of a sequence, from 1 on, which must exist. ``shown``: shows the progress. ``options``: of
    :func:`attsvm.inspect.inspect`.

    Returns the inspections, and the tokens of each sequence. Raises ProblemError if a model cannot be inspected, or the
    tokenizers of two models disagree.
    """
    names, steps = training_order(models)
    if len(models) == 1:
        found = checkpoints(models[0])
        names, steps = [str(path) for _, path in found], [step for step, _ in found]
    texts = [] if text is None else inputs.read_texts(text)
    family = options.get("family")
    numbered = list(enumerate(names))
    leader = next((k for k, name in numbered if images is not None or inputs.has_tokenizer(name)), 0)
    network = _load(names[leader], pictures=images is not None)
    given = _input(names[leader], network, texts, images, family)
    if sentence is not None and sentence > len(given.tokens):
        raise ProblemError(f"--sentence: expected a number from 1 to {len(given.tokens)}, got {sentence}")
    # all models are checked before anything is computed; the first and the last one, which are drawn, stay in memory
    ends: dict[int, nn.Module] = {}
    for k, name in numbered:
        one = network if k == leader else _load(name, pictures=images is not None)
        if images is None and k != leader and inputs.has_tokenizer(name):
            _check_same(names[leader], given, name, _input(name, one, texts, images, family))
        attention_layers(one, family)  # refuses models without a known one
        if k in (0, len(names) - 1):
            ends[k] = one

    def inspections() -> Iterator[Inspection]:
        for k, name in numbered:
            model = ends.get(k) or _load(name, pictures=images is not None)
            with shown(Path(name).name, lambda _: None) as callback:
                inspection = inspect(model, given.batch, callback=callback, **options)
            yield inspection if k in ends else replace(inspection, source=None)

    return Series.of(names, steps, list(inspections())), given.tokens


def _load(name: str, *, pictures: bool) -> nn.Module:
    return tower(load_model(name), pictures=pictures)


def _input(name: str, network: nn.Module, texts: list[str], images: Path | None, family: str | None) -> Input:
    layers = attention_layers(network, family)
    if images is not None:
        return inputs.read_pictures(name, images, network)
    return inputs.tokenized(name, texts, network, layers[0].family)


def _check_same(leader: str, given: Input, name: str, other: Input) -> None:
    """Check that two tokenizers agree, because otherwise selections cannot be compared."""
    one, two = given.batch["input_ids"], other.batch["input_ids"]
    if one.shape != two.shape or bool((one != two).any()):
        raise ProblemError(f"{name}: expected a tokenizer that gives the tokens of {leader} for this text, got others")


def _testable(held_out: Source, place: tuple[int, int], seed: int, say: Callable[[str], None]) -> Running:
    """Run the head in detail on other text, and say what a test of its reasons can show."""
    layer, head = place
    running = Running.of(Heads(held_out, layer, (head,), None), None, seed)
    say(
        f"Head {layer}.{head} gives {running.score:.2f} of its attention on the held-out text to the tokens that it"
        f" selects, and {running.resampled:.2f} to the same places if its queries and keys are made from random tokens."
        " The causal tests will show which origins cause the difference."
    )
    return running
