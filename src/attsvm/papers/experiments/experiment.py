"""One of the paper's experiments: a preset of a task, its data, and the runs of optimisers on them.

:ref:`Provisional <provisional>`: it may change in any minor version.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.pages import ExperimentResult
from attsvm.papers.experiments.measurements import EDGES, measure, weight_histograms
from attsvm.papers.experiments.models import Classifier
from attsvm.papers.experiments.optimizers import check_optimizer
from attsvm.papers.experiments.options import Options
from attsvm.papers.experiments.presets import Preset
from attsvm.papers.experiments.published import compared
from attsvm.papers.experiments.tasks import Data, Task, View, find_task
from attsvm.papers.experiments.training import Hooks, fit
from attsvm.results import Status

MEASURED_ROWS = 100
"""Number of test rows on which attention is measured after every epoch."""


def make_options(preset: Preset[Any], optimizer: str, learning_rate: float | None = None, **changes: Any) -> Options:
    """The options of a run with a preset.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    ``learning_rate``: by default that of the preset. ``changes``: other attributes of :class:`Options`.

    Raises ProblemError if an option is out of range, or the preset has no learning rate for the optimiser.
    """
    if learning_rate is None:
        check_optimizer(optimizer)
        learning_rate = preset.learning_rates.get(optimizer)
        if learning_rate is None:
            known = ", ".join(preset.learning_rates)
            raise ProblemError(
                f"--learning-rate: expected one for {optimizer!r}, because the preset has them for {known} only"
            )
    options = Options(
        optimizer, learning_rate, preset.epochs, preset.batch, reduction=preset.reduction, stop_at=preset.stop_at
    )
    return replace(options, **changes)


@dataclass(frozen=True)
class Experiment:
    """A preset of a task with its data.

    :ref:`Provisional <provisional>`: it may change in any minor version.
    """

    task: Task[Any]
    preset_name: str
    data: Data

    @classmethod
    def load(
        cls,
        task: str,
        preset_name: str,
        source: str | None = None,
        *,
        vocabulary: str | None = None,
        validation_rows: int = 0,
    ) -> "Experiment":
        """Load the data of a preset; arguments as for :meth:`attsvm.papers.experiments.tasks.Task.load`.

        Raises ProblemError if there is no such task or preset, or its data cannot be read.
        """
        found = find_task(task)
        preset = found.preset(preset_name)
        source = found.hub_name if source is None else source
        data = found.load(preset, source, vocabulary=vocabulary, validation_rows=validation_rows)
        classes = np.unique(data.train.labels.numpy())
        if len(classes) < 2:
            raise ProblemError(
                f"{source}: expected rows of at least two classes to train on, got {len(data.train)} of "
                f"class {int(classes[0])}"
            )
        return cls(found, preset_name, data)

    @property
    def preset(self) -> Preset[Any]:
        return self.task.preset(self.preset_name)

    def run(
        self, options: Options, folder: Path, *, resume: bool = False, callback: Callback | None = None
    ) -> dict[str, Any]:
        """Train one model and measure it.

        ``folder``: an existing folder for the checkpoint. ``resume``: continue from the checkpoint in ``folder``, if
        there is one. ``callback``: called with a :class:`attsvm.Progress` after every step. If it returns True, the run
        stops.

        Returns what ``result.json`` holds for a run.
        """
        task, preset, data = self.task, self.preset, self.data
        torch.manual_seed(options.seed)
        model: Classifier = preset.shape.build()
        sample = data.test.__getitems__(list(range(min(MEASURED_ROWS, len(data.test)))))["inputs"].to(options.device)

        def view() -> View:
            return task.view(model, preset, data, options.device)

        hooks = Hooks(
            augment=task.augment if preset.augment else None,
            measure=lambda: {**measure(model, sample), **view().numbers},
            record=lambda: view().record,
            callback=callback,
        )
        identity = {"data": data.sha256, "model": repr(preset.shape)}
        outcome = fit(model, data.train, data.test, options, folder, resume=resume, identity=identity, hooks=hooks)
        numbers = {
            **{name: getattr(options, name) for name in ("optimizer", "learning_rate", "seed")},
            **{name: getattr(outcome, name) for name in ("status", "steps", "seconds", "best", "history")},
            "histograms": weight_histograms(model),
            "edges": EDGES.tolist(),
        }
        if outcome.status is Status.NON_FINITE:
            return {**numbers, "over_steps": []}
        end = view()
        # the end may be a record, too
        records = [*(one for one in outcome.records if one[0] < outcome.steps), (outcome.steps, end.record)]
        over_steps = [{"step": step, "attention": attention} for step, attention in records]
        return {**numbers, **end.shown, "over_steps": over_steps}

    def result(
        self,
        runs: list[dict[str, Any]],
        *,
        command: str,
        seed: int,
        threads: int | None,
        device: str,
        earlier: Iterable[dict[str, Any]] = (),
    ) -> dict[str, Any]:
        """What ``result.json`` holds.

        ``runs``: from :meth:`run`. ``earlier``: what ``result.json`` holds of other experiments of the task, for the
        table of published accuracies.
        """
        shape, data = self.preset.shape, self.data
        parameters = sum(weights.numel() for weights in shape.build().parameters())
        found = {
            "kind": "experiment",
            "task": self.task.name,
            "preset": self.preset_name,
            "seed": seed,
            "device": device,
            "data": {"source": data.source, "train": len(data.train), "test": len(data.test), "sha256": data.sha256},
            "model": {**asdict(shape.blocks), "parameters": parameters},
            "runs": runs,
        }
        published = compared([found, *earlier], self.task.presets)
        return ExperimentResult.fill(found, command=command, threads=threads, published=published)
