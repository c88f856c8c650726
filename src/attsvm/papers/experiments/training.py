"""The training loop of the experiments: small, seeded, and resumable bit for bit.

A run that is killed in the middle of an epoch and resumed ends with the same weights, bit for bit. Lightning and
Accelerate resume at the start of an epoch, or skip batches and continue with the random generators as they are. Here
the order of the data is a function of (seed, epoch), and a checkpoint holds the position in it, the generators and the
mirror variables. That, Ctrl-C and the test for finite numbers are most of this file; the step itself is PyTorch's usual
one.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attsvm._utils.interruption import interruptions
from attsvm._utils.memory import enough_memory
from attsvm._utils.progress import Callback, Progress, is_recorded
from attsvm.errors import ProblemError
from attsvm.papers.experiments.checkpoints import Position, load_checkpoint, save_checkpoint
from attsvm.papers.experiments.evaluation import EVALUATION_BATCH, answers, evaluate, in_precision, losses
from attsvm.papers.experiments.optimizers import make_optimizer
from attsvm.papers.experiments.options import Options
from attsvm.papers.experiments.tables import Rows
from attsvm.results import Status
from attsvm.torch.sharding import all_finite

CHECKPOINT = "checkpoint.safetensors"


def data_order(rows: int, seed: int, epoch: int) -> Tensor:
    """A permutation of the rows that depends on the seed and the epoch only."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(rows))


@dataclass(frozen=True)
class Hooks:
    """Functions that the training loop calls."""

    # changes a batch of inputs, with randomness from PyTorch's generator only
    augment: Callable[[Tensor], Tensor] | None = None
    # called with the model before the first epoch and after every epoch; its result is added to the history
    measure: Callable[[nn.Module], dict[str, Any]] | None = None
    # called with the model after 0, 1, 2, 4, 8, … steps; what it returns is JSON-able, and kept in checkpoints, too
    record: Callable[[nn.Module], Any] | None = None
    # called with a :class:`attsvm.Progress` after every step. If it returns True, training stops.
    callback: Callback | None = None


@dataclass
class Outcome:
    """The result of a run."""

    # ``finished``; ``interrupted`` by Ctrl-C or by the callback; or ``non_finite`` if a loss or a gradient was not
    # finite, and then the weights are those before that step
    status: Status
    # one entry per epoch: epoch, step, seconds, train_loss, train_accuracy, test_loss, test_accuracy, and the result of
    # :attr:`Hooks.measure`. Losses are means over rows; those of training are measured during training.
    history: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    seconds: float = 0.0  # over all parts of a resumed run
    # the results of :attr:`Hooks.record`, each with its step
    records: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def best(self) -> dict[str, Any] | None:
        """The trained epoch with the best test accuracy, the first of equal ones; None if no epoch was completed."""
        return max(self.history[1:], key=lambda row: row["test_accuracy"], default=None)


def fit(
    model: nn.Module,
    train: Rows,
    test: Rows,
    options: Options,
    folder: Path,
    *,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    hooks: Hooks | None = None,
) -> Outcome:
    """Train a model, and write a checkpoint from which a later call resumes.

    Call ``torch.manual_seed`` before the model is created: its initial weights come from PyTorch's generator.

    ``model``: trained in place. ``test``: evaluated after every epoch. ``folder``: an existing folder for the
    checkpoint. ``resume``: continue from the checkpoint in ``folder``, if there is one. ``identity``: further values
    that must be equal to resume, such as the hash of the data.

    Ctrl-C completes the step and saves a checkpoint; the status is then ``interrupted``. A second Ctrl-C ends at once.

    Raises ProblemError if there are no rows, or the checkpoint belongs to another run.
    """
    if not len(train) or not len(test):
        raise ProblemError(f"rows: expected at least 1 to train on and 1 to test on, got {len(train)} and {len(test)}")
    known = {**options.identity(), **(identity or {}), "rows": [len(train), len(test)]}
    run = _Run(model, train, test, options, folder, known, hooks or Hooks())
    if resume:
        run.restore()
    run.start()
    with interruptions() as requested:
        status = run.train(requested)
    if status is Status.INTERRUPTED:
        run.save()
    return Outcome(status, run.history, run.position.step, run.seconds(), run.records)


class _Run:
    """The state of a run, and the loop over epochs and steps."""

    def __init__(
        self,
        model: nn.Module,
        train: Rows,
        test: Rows,
        options: Options,
        folder: Path,
        known: dict[str, Any],
        hooks: Hooks,
    ) -> None:
        self.model, self.rows, self.test, self.options, self.hooks = model, train, test, options, hooks
        self.device, self.path, self.known = torch.device(options.device), folder / CHECKPOINT, known
        model.to(self.device)
        self.optimizer = make_optimizer(options.optimizer, model.parameters(), options.learning_rate)
        self.called: Callable[[Tensor], Tensor] = torch.compile(model) if options.compile else model
        self.position = Position()
        self.history: list[dict[str, Any]] = []
        self.records: list[tuple[int, Any]] = []
        self.batches = -(-len(train) // options.batch)
        self.began = time.perf_counter()
        self.seconds_before = 0.0

    def restore(self) -> None:
        """Continue from the checkpoint, if there is one."""
        if self.path.exists():
            self.position, self.history, self.records = load_checkpoint(
                self.path, self.model, self.optimizer, self.known
            )
            self.began, self.seconds_before = time.perf_counter(), self.position.seconds

    def start(self) -> None:
        """Evaluate the initial model, unless the run is resumed."""
        if not self.history:
            self.history.append({"epoch": 0, "step": 0, "seconds": 0.0, **self._evaluated()})
            self._record()

    def train(self, interrupted: Event) -> Status:
        """Train until the last epoch, or until something ends the run before."""
        options, position = self.options, self.position
        while position.epoch < options.epochs and not self._accurate():
            ended = self._steps(interrupted) or self._end_epoch()
            if ended is not None:
                return ended
            if interrupted.is_set() and position.epoch < options.epochs:
                return Status.INTERRUPTED
        return Status.FINISHED

    def save(self) -> None:
        self.position.seconds = self.seconds()
        save_checkpoint(self.path, self.model, self.optimizer, self.position, self.history, self.records, self.known)

    def seconds(self) -> float:
        """Time of the run, over all its parts."""
        return self.seconds_before + time.perf_counter() - self.began

    def _steps(self, interrupted: Event) -> Status | None:
        """The remaining steps of an epoch; a status if the run ends in it."""
        options, position = self.options, self.position
        order = data_order(len(self.rows), options.seed, position.epoch)
        self.model.train()
        while position.batch < self.batches:
            rows = order[position.batch * options.batch : (position.batch + 1) * options.batch]
            with enough_memory(self.device, "rows of a batch", options.batch):
                total = self._step(rows)
            if total is None:
                return Status.NON_FINITE
            self._record()
            stopped = self._report(total / len(rows))
            if interrupted.is_set() or stopped:
                return Status.INTERRUPTED
            if position.step % options.checkpoint_every == 0 and position.batch < self.batches:
                self.save()
        return None

    def _step(self, rows: Tensor) -> float | None:
        """One step; the sum of the losses, or None if a loss or a gradient is not finite."""
        options, position = self.options, self.position
        inputs, labels = self.rows.batch(rows, self.device, trim=not options.compile)
        if self.hooks.augment is not None:
            inputs = self.hooks.augment(inputs)
        with in_precision(self.device, options.precision):
            outputs = self.called(inputs)
        of_rows = losses(outputs, labels)
        loss = of_rows.sum() if options.reduction == "sum" else of_rows.mean()
        total = float(of_rows.detach().sum())
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        parameters = (x for group in self.optimizer.param_groups for x in group["params"])
        if not math.isfinite(total) or not all_finite([x.grad for x in parameters if x.grad is not None]):
            return None
        self.optimizer.step()
        position.batch += 1
        position.step += 1
        position.loss += total
        position.correct += int((answers(outputs.detach()) == labels).sum())
        position.seen += len(rows)
        return total

    def _record(self) -> None:
        step = self.position.step
        if self.hooks.record is not None and is_recorded(step):
            self.records.append((step, self.hooks.record(self.model)))

    def _report(self, loss: float) -> bool:
        """Call the callback; whether it stops the run."""
        if self.hooks.callback is None:
            return False
        epochs = self.options.epochs
        stage = f"epoch {self.position.epoch + 1} of {epochs}"
        progress = Progress(self.position.step, epochs * self.batches, self.seconds(), loss, stage=stage)
        return bool(self.hooks.callback(progress))

    def _end_epoch(self) -> Status | None:
        """Evaluate the model, and save; a status if it is no longer finite."""
        position = self.position
        row = {
            "epoch": position.epoch + 1,
            "step": position.step,
            "seconds": self.seconds(),
            "train_loss": position.loss / position.seen,
            "train_accuracy": position.correct / position.seen,
            **self._evaluated(),
        }
        if not math.isfinite(row["test_loss"]):
            return Status.NON_FINITE
        self.history.append(row)
        position.epoch, position.batch = position.epoch + 1, 0
        position.loss, position.correct, position.seen = 0.0, 0, 0
        self.save()
        return None

    def _evaluated(self) -> dict[str, Any]:
        with enough_memory(self.device, "rows of a batch", EVALUATION_BATCH):
            loss, accuracy = evaluate(self.model, self.test, self.options.device, self.options.precision)
        measured = {} if self.hooks.measure is None else self.hooks.measure(self.model)
        return {"test_loss": loss, "test_accuracy": accuracy, **measured}

    def _accurate(self) -> bool:
        """Whether the training accuracy of the last epoch ends the run."""
        stop_at = self.options.stop_at
        return stop_at is not None and self.history[-1].get("train_accuracy", 0.0) >= stop_at
