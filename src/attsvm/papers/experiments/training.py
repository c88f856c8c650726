"""The training of a run, by the Trainer of transformers: it makes the steps, evaluates, and writes checkpoints.

A run that is killed in the middle of an epoch and resumed ends with the same weights, bit for bit. This file has what
the Trainer does not know of: an order of the rows for each seed and epoch, the history and the records of a run,
Ctrl-C, the end of a run that diverges, and checkpoints that are damaged.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState, PrinterCallback

from attsvm._utils.files import finish, reading, reason, unfinished
from attsvm._utils.interruption import interruptions
from attsvm._utils.memory import enough_memory
from attsvm._utils.progress import Callback, Progress, is_recorded
from attsvm.errors import ProblemError
from attsvm.papers.experiments.folder import CHECKPOINT
from attsvm.papers.experiments.models import Classifier, answers, losses
from attsvm.papers.experiments.optimizers import make_optimizer
from attsvm.papers.experiments.options import Options
from attsvm.papers.experiments.tables import TaskRows
from attsvm.pretrained import quiet_transformers
from attsvm.results import Status

DIGEST = "sha256"
EVALUATION_BATCH = 250


@dataclass(frozen=True)
class Hooks:
    """Functions that are called in training."""

    # changes a batch of inputs, with randomness from PyTorch's generator only
    augment: Callable[[Tensor], Tensor] | None = None
    # called before the first epoch and after every epoch; its result is added to the history
    measure: Callable[[], dict[str, Any]] = dict
    # called after 0, 1, 2, 4, 8, … steps; what it returns is JSON-able, and kept in checkpoints, too
    record: Callable[[], Any] | None = None
    # called with a :class:`attsvm.Progress` after every step. If it returns True, training stops.
    callback: Callback | None = None


@dataclass
class TrainingOutcome:
    """The result of a run."""

    # ``finished``; ``interrupted`` by Ctrl-C or by the callback; or ``non_finite`` if a loss or a gradient was not
    # finite, and then the weights are those before that step
    status: Status = Status.INTERRUPTED
    # one entry per epoch: epoch, step, seconds, train_loss, train_accuracy, test_loss, test_accuracy, and the result of
    # :attr:`Hooks.measure`. Losses are means over rows; those of training are measured during training.
    history: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0  # over all parts of a resumed run
    # the results of :attr:`Hooks.record`, each with its step
    records: list[tuple[int, Any]] = field(default_factory=list)

    @property
    def best(self) -> dict[str, Any] | None:
        """The trained epoch with the best test accuracy, the first of equal ones; None if no epoch was completed."""
        return max(self.history[1:], key=lambda row: row["test_accuracy"], default=None)


def fit(
    model: Classifier,
    train: TaskRows,
    test: TaskRows,
    options: Options,
    folder: Path,
    *,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    hooks: Hooks | None = None,
) -> TrainingOutcome:
    """Train a model, and write a checkpoint from which a later call resumes.

    Call ``torch.manual_seed`` before the model is created: its initial weights come from PyTorch's generator.

    ``model``: trained in place. ``test``: evaluated after every epoch. ``folder``: an existing folder for the
    checkpoint. ``resume``: continue from the checkpoint in ``folder``, if there is one. ``identity``: further values
    that must be equal to resume, such as the hash of the data.

    Ctrl-C completes the step and saves a checkpoint; the status is then ``interrupted``. A second Ctrl-C ends at once.

    Raises ProblemError if there are no rows, or the checkpoint belongs to another run or cannot be read or written.
    """
    if not len(train) or not len(test):
        raise ProblemError(f"rows: expected at least 1 to train on and 1 to test on, got {len(train)} and {len(test)}")
    if options.compile:  # batches of one length, because each length is compiled anew
        train, test = replace(train, padding=None), replace(test, padding=None)
    path, device = folder / CHECKPOINT, torch.device(options.device)
    resume = resume and path.exists()
    with quiet_transformers(), unfinished(path) as hidden, enough_memory(device, "rows of a batch", options.batch):
        known = {**options.identity(), **(identity or {}), "rows": [len(train), len(test)]}
        run = _WithLoss(model.to(device), options, hooks or Hooks())
        keeper = _Keeper(run, path, len(train), known)
        if resume:
            keeper.restore()
        drawn = torch.get_rng_state()
        trainer = _Trainer(
            run,
            # of a run that has ended, the Trainer loads the weights
            _arguments(options, hidden, keeper.epoch if keeper.has_ended() else options.epochs),
            train_dataset=train,
            eval_dataset=test,
            compute_metrics=_metrics,
            callbacks=[keeper],
            optimizers=(make_optimizer(options.optimizer, model.parameters(), options.learning_rate), None),
        )
        torch.set_rng_state(drawn)  # the Trainer has set the seed again, with which the weights were drawn
        trainer.keeper = keeper
        trainer.remove_callback(PrinterCallback)
        if not resume:
            trainer.evaluate()
        try:
            with interruptions() as keeper.interrupted:
                trainer.train(resume_from_checkpoint=str(path) if resume else None)
            keeper.found.status = Status.FINISHED if keeper.has_ended() else Status.INTERRUPTED
        except _NotFinite:
            keeper.found.status = Status.NON_FINITE
        except Exception as error:
            if keeper.failure:
                raise ProblemError(f"{path}: {keeper.failure} ({reason(error)})") from error
            raise
    keeper.found.steps, keeper.found.seconds = trainer.state.global_step, keeper.seconds()
    return keeper.found


def _arguments(options: Options, folder: Path, epochs: int) -> TrainingArguments:
    """The settings of the Trainer; :class:`_Keeper` says when it evaluates and saves."""
    device = torch.device(options.device)
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=options.batch,
        per_device_eval_batch_size=EVALUATION_BATCH,
        seed=options.seed,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        bf16=options.precision == "bf16",
        use_cpu=device.type == "cpu",
        eval_strategy="no",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    if device.type != "cpu":  # the Trainer takes all GPUs otherwise, each with a batch of its own
        vars(arguments).update(_n_gpu=1, _setup_devices=device)
        arguments.distributed_state.device = device
        torch.cuda.set_device(device)
    return arguments


def _metrics(found: EvalPrediction) -> dict[str, float]:
    """Mean loss and accuracy on the test rows."""
    outputs, labels = torch.as_tensor(found.predictions), torch.as_tensor(found.label_ids)
    right = (answers(outputs) == labels).double().mean()
    return {"test_loss": float(losses(outputs, labels).double().mean()), "test_accuracy": float(right)}


class _Trainer(Trainer):
    """The Trainer with loaders that draw nothing from PyTorch's generator: what is left to draw is dropout."""

    keeper: "_Keeper"

    def get_train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.train_dataset, self.args.train_batch_size, _Order(self.keeper))

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        return self._loader(self.eval_dataset, self.args.eval_batch_size, None)

    def _loader(self, rows: Any, batch: int, order: Any) -> DataLoader[Any]:
        loader: DataLoader[Any] = self.accelerator.prepare(
            DataLoader(rows, batch, sampler=order, collate_fn=lambda found: found, generator=torch.Generator())
        )
        return loader


class _NotFinite(Exception):
    """Raised before the first step with a loss or a gradient that is not finite."""


class _WithLoss(nn.Module):
    """A classifier as the Trainer calls it, with labels."""

    sums: Tensor

    def __init__(self, classifier: Classifier, options: Options, hooks: Hooks) -> None:
        super().__init__()
        self.classifier, self.options, self.hooks = classifier, options, hooks
        forward: Callable[[Tensor], Tensor] = classifier.forward
        self.called = torch.compile(forward) if options.compile else forward
        # losses and right answers in the epoch so far; in a buffer, so that checkpoints have them
        self.register_buffer("sums", torch.zeros(2, dtype=torch.float64, device=options.device))
        self.mean = 0.0  # loss of the last batch

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if self.training and self.hooks.augment is not None:
            inputs = self.hooks.augment(inputs)
        outputs = self.called(inputs)
        of_rows = losses(outputs, labels)
        if self.training:
            right = answers(outputs.detach()) == labels
            self.sums += torch.stack([of_rows.detach().sum().double(), right.sum().double()])
            self.mean = float(of_rows.detach().mean())
        return {"loss": of_rows.sum() if self.options.reduction == "sum" else of_rows.mean(), "logits": outputs}


class _Keeper(TrainerCallback, ExportableState):
    """Keeps the history of a run, and says when it is evaluated, saved and ended."""

    interrupted: Event  # set by Ctrl-C

    def __init__(self, run: _WithLoss, path: Path, rows: int, known: dict[str, Any]) -> None:
        self.run, self.path, self.rows = run, path, rows
        self.known = json.loads(json.dumps(known))
        self.batches = -(-rows // run.options.batch)  # steps of an epoch
        self.found = TrainingOutcome()
        self.began = time.perf_counter()
        self.stops = False  # whether Ctrl-C or the callback ends the run
        self.failure = ""  # what an error means at the moment

    def state(self) -> dict[str, Any]:
        """What a checkpoint has besides what the Trainer writes into it."""
        about = {"history": self.found.history, "records": self.found.records}
        return {"args": {}, "attributes": {"identity": self.known, "seconds": self.seconds(), **about}}

    def restore(self) -> None:
        """Take the history of the checkpoint, unless it is another run's."""
        self.failure = "not a checkpoint of attsvm"
        with reading(self.path, self.failure):
            if (self.path / DIGEST).read_text() != _digest(self.path):
                raise ValueError("its content does not have its SHA-256")
            state = json.loads((self.path / "trainer_state.json").read_text(encoding="utf-8"))
            kept = state["stateful_callbacks"][type(self).__name__]["attributes"]
            for name in sorted(set(kept["identity"]) | set(self.known)):
                if kept["identity"].get(name) != self.known.get(name):
                    raise ProblemError(
                        f"{self.path}: expected a run with {name} {self.known.get(name)!r}, got one with "
                        f"{kept['identity'].get(name)!r}; a run is resumed with the same settings"
                    )
            records = [(step, record) for step, record in kept["records"]]
            self.found = TrainingOutcome(history=kept["history"], seconds=kept["seconds"], records=records)

    def seconds(self) -> float:
        """Time of the run, over all its parts."""
        return self.found.seconds + time.perf_counter() - self.began

    @property
    def epoch(self) -> int:
        """Number of epochs that were made."""
        return len(self.found.history) - 1

    def has_ended(self) -> bool:
        """Whether the run has made all epochs, or its training accuracy has ended it."""
        options, history = self.run.options, self.found.history
        accurate = options.stop_at is not None and self.epoch > 0 and history[-1]["train_accuracy"] >= options.stop_at
        return accurate or self.epoch >= options.epochs

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.failure = ""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        finite = [torch.isfinite(x.grad).all() for x in self.run.parameters() if x.grad is not None]
        if not (math.isfinite(self.run.mean) and torch.stack(finite).all()):
            raise _NotFinite

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, epochs, hooks = state.global_step, self.run.options.epochs, self.run.hooks
        self._record(step)
        if hooks.callback is not None:
            stage = f"epoch {-(-step // self.batches)} of {epochs}"
            at = Progress(step, epochs * self.batches, self.seconds(), self.run.mean, stage=stage)
            self.stops |= bool(hooks.callback(at))
        self.stops |= self.interrupted.is_set()
        if step % self.batches:  # otherwise the epoch ends
            control.should_training_stop = self.stops
            self._save(control, self.stops or step % self.run.options.checkpoint_every == 0)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_evaluate = state.global_step % self.batches == 0

    def on_evaluate(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        step, history, metrics = state.global_step, self.found.history, named["metrics"]
        row: dict[str, Any] = {"epoch": len(history), "step": step, "seconds": self.seconds() if step else 0.0}
        if step:
            row |= zip(("train_loss", "train_accuracy"), (self.run.sums / self.rows).tolist(), strict=True)
            self.run.sums.zero_()
        row |= {name: metrics[f"eval_{name}"] for name in ("test_loss", "test_accuracy")} | self.run.hooks.measure()
        if step and not math.isfinite(row["test_loss"]):
            raise _NotFinite
        history.append(row)
        if step:
            control.should_training_stop = self.stops or self.has_ended()
            self._save(control, True)
        else:
            self._record(0)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        made = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        (made / DIGEST).write_text(_digest(made))
        finish(made, self.path)
        self.failure = ""

    def _save(self, control: Any, now: bool) -> None:
        control.should_save, self.failure = now, "cannot be written" if now else ""

    def _record(self, step: int) -> None:
        if self.run.hooks.record is not None and is_recorded(step):
            self.found.records.append((step, self.run.hooks.record()))


@dataclass(frozen=True)
class _Order:
    """The numbers of the training rows, in the order of the epoch that begins."""

    keeper: _Keeper

    def __len__(self) -> int:
        return self.keeper.rows

    def __iter__(self) -> Iterator[int]:
        drawn = np.random.default_rng([self.keeper.run.options.seed, self.keeper.epoch]).permutation(self.keeper.rows)
        return iter(drawn.tolist())


def _digest(checkpoint: Path) -> str:
    """SHA-256 of the files: their formats do not notice all damage."""
    found = hashlib.sha256()
    for path in sorted(checkpoint.iterdir()):
        if path.name != DIGEST:
            with path.open("rb") as stream:
                found.update(path.name.encode() + hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()
