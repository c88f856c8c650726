"""Inspection of a saved model beside its random twin and its checkpoints, with tests of the reasons of one head."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from torch import nn

from attsvm._utils.progress import in_draws
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.causal import CONTROLS, CausalTest, Running
from attsvm.inspect.effects import Effects
from attsvm.inspect.explanation import Explanation, OriginPair, reason_of
from attsvm.inspect.heads import HeadProgress
from attsvm.inspect.inspection import inspect
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.result import Inspection
from attsvm.pretrained import Input, checkpoints, load_model, random_twin, read_input, read_texts

ShowProgress = Callable[[str, Callable[[Any], object]], AbstractContextManager[Callable[[Any], object]]]
"""Shows the progress of a block: from what is inspected, and a callback, to what shows it and calls the callback."""

TWIN_GAP = 0.1
"""Relative width of the margins' intervals of the twin, unless that of the model is larger: it is only compared."""

TWIN_HEADS = 2
"""Heads of each layer of the twin. With random weights they are interchangeable."""

MOST_REASONS = 3
"""Reasons that are tested on held-out text."""

LEAST_SHARE = 0.05
"""Share of the decision margin of a pair of origins that is tested as a reason."""


class TestedReason(NamedTuple):
    """A pair of origins and its causal test."""

    pair: OriginPair
    test: CausalTest | None
    untested: str = ""  # why there is no test


class FoundInspections(NamedTuple):
    """The inspections of a model, of its randomly initialised twin, and of its checkpoints by training step."""

    done: Inspection
    twin: Inspection | None = None
    steps: tuple[tuple[int, Inspection], ...] = ()
    tests: tuple[TestedReason, ...] = ()  # of the head in detail
    effects: Effects | None = None

    def with_twin(self, twin: Inspection) -> "FoundInspections":
        """The same with the randomly initialised twin."""
        return self._replace(twin=twin)

    def with_checkpoint(self, step: int, checkpoint: Inspection) -> "FoundInspections":
        """The same with one more checkpoint, once its margins are solved."""
        return self if checkpoint.interrupted else self._replace(steps=(*self.steps, (step, checkpoint)))


@dataclass(frozen=True)
class SavedModel:
    """A saved model, its input, its checkpoints by training step, and other text to test reasons on."""

    network: nn.Module
    given: Input
    series: list[tuple[int, Path]]
    held_out: ModelAndBatch | None
    part: bool | None  # of a model for texts and pictures: which one it sees; None for both

    @classmethod
    def load(
        cls,
        model: str,
        text: Path | None,
        images: Path | None,
        family: str | None = None,
        *,
        sounds: Path | None = None,
        target: Path | None = None,
        checkpoint_folder: Path | None = None,
        held_out: Path | None = None,
        **as_text: Any,
    ) -> Self:
        """Load a model from a folder or by its name on the hub, and read its text, pictures or sounds.

        ``target``: text of the decoder, one line for each sequence.

        ``as_text``: how texts are read: ``special_tokens``, False without those that the tokenizer adds; ``chat``, each
        text is what a user says; ``pairs``, each is two sentences with a tab between them.

        Raises ProblemError if something cannot be read, or does not fit the model.
        """
        texts = [] if text is None else read_texts(text)
        series = [] if checkpoint_folder is None else checkpoints(checkpoint_folder)
        network = load_model(model, pictures=part_for(text, images))
        layers = attention_layers(network, family)  # refuses models without a known one
        targets = None if target is None else read_texts(target)
        given = read_input(model, network, texts, images, sounds=sounds, targets=targets, **as_text)
        other = None
        if held_out is not None:
            others = read_input(model, network, read_texts(held_out), None, **as_text)
            other = ModelAndBatch.whole(network, others.batch, layers)
        return cls(network, given, series, other, part_for(text, images))

    def inspect(
        self,
        place: tuple[int, int] | None,
        *,
        with_twin: bool,
        with_effects: bool = False,
        shown: ShowProgress,
        keep: Callable[[FoundInspections], None],
        say: Callable[[str], None],
        **options: Any,
    ) -> FoundInspections:
        """Inspect the model, then its twin and its checkpoints.

        ``place``: the layer and the number of the head in detail. ``with_twin``: inspect the same model with random
        weights, too. ``with_effects``: what the heads write and what removing them costs, too. ``shown``: shows the
        progress. ``keep``: called with what is found so far. ``say``: called with what a test of the reasons on the
        held-out text can show, and why there are no effects. ``options``: of :func:`attsvm.inspect.inspect`.

        Raises ProblemError if there is no such head, or its reasons cannot be tested.
        """
        # a head whose reasons cannot be tested is refused before anything else is computed
        running = None
        if self.held_out is not None and place is not None:
            running = _testable(self.held_out, place, options["seed"], say)

        def inspected(
            name: str, model: nn.Module, known: Callable[[Inspection], FoundInspections], **options: Any
        ) -> FoundInspections:
            source: ModelAndBatch | None = None

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

        found = inspected("the model", self.network, FoundInspections, view=place, **options)
        explanation = None if found.done.detail is None else found.done.detail.explanation
        if running is not None and explanation is not None:
            with shown("causal tests", lambda _: None) as callback:
                found = found._replace(tests=_tested_reasons(explanation, running, callback))
        if with_effects:
            with shown("effects", lambda _: None) as callback:
                try:
                    found = found._replace(effects=found.done.effects(seed=options["seed"], callback=callback))
                except ProblemError as error:  # the inspection remains
                    say(f"--effects: {error}")
        if with_twin:
            some = [(head.layer, head.head) for head in found.done.heads if head.head < TWIN_HEADS]
            of_twin = options | {"gap": max(options["gap"], TWIN_GAP), "heads": options["heads"] or some}
            found = inspected("its twin", random_twin(self.network, options["seed"]), found.with_twin, **of_twin)
        for step, path in self.series:
            checkpoint = load_model(str(path), pictures=self.part)
            found = inspected(path.name, checkpoint, partial(found.with_checkpoint, step), **options)
        return found


def part_for(text: Path | None, images: Path | None) -> bool | None:
    """The part of a model for texts and pictures that sees what is given, as for :func:`load_model`."""
    return None if text is not None and images is not None else images is not None


def _testable(held_out: ModelAndBatch, place: tuple[int, int], seed: int, say: Callable[[str], None]) -> Running:
    """Run the head in detail on other text, and say what a test of its reasons can show."""
    layer, head = place
    running = Running.of(held_out, layer, (head,), None, seed)
    say(
        f"Head {layer}.{head} gives {running.score:.2f} of its attention on the held-out text to the tokens that it"
        f" selects, and {running.resampled.mean():.2f} to the same places if its queries and keys are made from random"
        " tokens. The causal tests will show which origins cause the difference."
    )
    return running


def _tested_reasons(
    explanation: Explanation, running: Running, callback: Callable[[Any], object] | None
) -> tuple[TestedReason, ...]:
    """The pairs with the largest shares, each tested as a reason on other sequences.

    ``running``: the same heads on sequences that they were not explained on. ``callback``: of the controls of all
    reasons.
    """
    pairs = [pair for pair in explanation.pairs(None) if pair.share >= LEAST_SHARE][:MOST_REASONS]
    found = []
    for k, pair in enumerate(pairs):
        counted = in_draws(callback, k, len(pairs), "reason")
        try:
            test = running.test(reason_of(explanation, pair.query, pair.key), CONTROLS, counted)
            found.append(TestedReason(pair, test))
        except ProblemError as error:  # for example without another origin for the controls
            found.append(TestedReason(pair, None, str(error)))
    return tuple(found)
