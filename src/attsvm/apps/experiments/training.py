"""The training loop of the experiments: small, seeded, and resumable bit for bit.

A loop of our own, though Lightning and Accelerate are well kept: what must hold here is that a run killed in the middle
of an epoch and resumed ends with the same weights, bit for bit. Trainers resume at the start of an epoch, or skip
batches and go on with whatever the random generators have by then. Here the order of the data is a function of (seed,
epoch), and a checkpoint holds the place in it, the generators and the mirror variables; that takes fewer lines than
bending a trainer to it.
"""

import contextlib
import math
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attsvm.apps.experiments.checkpoints import Position, load_checkpoint, save_checkpoint
from attsvm.errors import ProblemError
from attsvm.torch.optimizers.gradients import NonFiniteGradientError
from attsvm.torch.optimizers.mirror_descent import MirrorDescent

OPTIMIZERS = ("mirror-P", "sgd", "adam")
"""Names of optimisers; P is any number above 1, as in mirror-1.1."""

CHECKPOINT = "checkpoint.safetensors"
EVALUATION_BATCH = 250


@dataclass(frozen=True)
class Rows:
    """Examples and their labels.

    Attributes
    ----------
    inputs : Tensor, shape (n, ...)
        Token numbers, padded at the end, or pictures.
    labels : Tensor of int, shape (n,)
    padding : int or None
        What texts are padded with: batches are cut to their longest text.
    """

    inputs: Tensor
    labels: Tensor
    padding: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, rows: Tensor, device: torch.device, trim: bool = True) -> tuple[Tensor, Tensor]:
        """Some examples and their labels, on a device."""
        inputs = self.inputs[rows]
        if trim and self.padding is not None:
            longest = int((inputs != self.padding).sum(-1).max())
            inputs = inputs[:, :longest]
        return inputs.to(device), self.labels[rows].to(device)


@dataclass(frozen=True)
class Options:
    """How a model is trained.

    Attributes
    ----------
    optimizer : str
        "mirror-P" for ℓp mirror descent with p = P, "sgd" or "adam".
    learning_rate : float
    epochs, batch, seed : int
    reduction : {"sum", "mean"}
        Of the losses of a batch.
    stop_at : float, optional
        Training ends after an epoch whose training accuracy (as it was while training) reaches this.
    checkpoint_every : int
        Steps between checkpoints; there is one after every epoch too.
    precision : {"float32", "bf16"}
        bf16: products in bfloat16 by autocast, weights and mirror variables in float32.
    compile : bool
        Compile the model.
    device : str
    """

    optimizer: str
    learning_rate: float
    epochs: int
    batch: int
    seed: int = 0
    reduction: str = "sum"
    stop_at: float | None = None
    checkpoint_every: int = 100
    precision: str = "float32"
    compile: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ProblemError(f"{name}: {getattr(self, name)} found, at least 1 wanted")
        if not 0 < self.learning_rate < math.inf:
            raise ProblemError(f"learning_rate: {self.learning_rate:g} found, a positive number wanted")
        if not 0 <= self.seed < 2**32:
            raise ProblemError(f"seed: {self.seed} found, a whole number from 0 to 2^32 - 1 wanted")
        if self.reduction not in ("sum", "mean"):
            raise ProblemError(f"reduction: {self.reduction!r} found, 'sum' or 'mean' wanted")
        if self.precision not in ("float32", "bf16"):
            raise ProblemError(f"precision: {self.precision!r} found, 'float32' or 'bf16' wanted")
        if self.device.split(":")[0] == "cuda" and not torch.cuda.is_available():
            raise ProblemError(f"device: {self.device!r} found, but PyTorch sees no GPU here")
        potential_of(self.optimizer)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must have in common with the one it goes on from."""
        return {name: value for name, value in asdict(self).items() if name not in ("checkpoint_every", "device")}


class At(NamedTuple):
    """Where a run is, for whoever shows it."""

    step: int
    steps: int
    loss: float
    epoch: int


@dataclass
class Outcome:
    """What a run came to.

    Attributes
    ----------
    status : {"finished", "interrupted", "diverged"}
        Diverged: a loss or a gradient was not finite; the weights are those before it.
    history : list of dict
        An entry an epoch: epoch, step, seconds, train_loss, train_accuracy, test_loss, test_accuracy, and what
        ``measure`` returned. Losses are means over rows; those of training are as they were while training.
    step : int
    seconds : float
        Over all parts of a resumed run.
    """

    status: str
    history: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    seconds: float = 0.0

    @property
    def best(self) -> dict[str, Any] | None:
        """The epoch with the best test accuracy, the first of equal ones."""
        return max(self.history, key=lambda row: row["test_accuracy"], default=None)


def potential_of(optimizer: str) -> float | None:
    """P of "mirror-P"; None for the other optimisers.

    Raises
    ------
    ProblemError
        If there is no such optimiser.
    """
    if optimizer in ("sgd", "adam"):
        return None
    name, _, power = optimizer.partition("-")
    with contextlib.suppress(ValueError):
        if name == "mirror" and 1 < float(power) < math.inf:
            return float(power)
    raise ProblemError(f"optimizer: {optimizer!r} found, one of {', '.join(OPTIMIZERS)} with P > 1 wanted")


def make_optimizer(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """The optimiser that the options name, over all weights of the model."""
    potential = potential_of(options.optimizer)
    if potential is not None:
        return MirrorDescent(model.parameters(), lr=options.learning_rate, p=potential, nonfinite="raise")
    kind = torch.optim.SGD if options.optimizer == "sgd" else torch.optim.Adam
    return kind(model.parameters(), lr=options.learning_rate)


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, NumPy and PyTorch, every GPU included."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (other people's code draws from it)
    torch.manual_seed(seed)


def data_order(rows: int, seed: int, epoch: int) -> Tensor:
    """A permutation of the rows that depends on the seed and the epoch alone."""
    return torch.from_numpy(np.random.default_rng([seed, epoch]).permutation(rows))


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """Loss of each row: binary cross-entropy of logits (b,), cross-entropy of logits (b, classes)."""
    outputs = outputs.float()
    if outputs.ndim == 1:
        return functional.binary_cross_entropy_with_logits(outputs, labels.float(), reduction="none")
    return functional.cross_entropy(outputs, labels, reduction="none")


def answers(outputs: Tensor) -> Tensor:
    """The class that logits speak for."""
    return (outputs > 0).long() if outputs.ndim == 1 else outputs.argmax(-1)


@torch.no_grad()
def evaluate(model: nn.Module, rows: Rows, device: str = "cpu", precision: str = "float32") -> tuple[float, float]:
    """Mean loss and accuracy of a model on rows, without dropout."""
    training = model.training
    model.eval()
    loss, correct, home = 0.0, 0, torch.device(device)
    for start in range(0, len(rows), EVALUATION_BATCH):
        inputs, labels = rows.batch(torch.arange(start, min(start + EVALUATION_BATCH, len(rows))), home)
        with _precision(home, precision):
            outputs = model(inputs)
        loss += float(losses(outputs, labels).sum())
        correct += int((answers(outputs) == labels).sum())
    model.train(training)
    return loss / len(rows), correct / len(rows)


def fit(
    model: nn.Module,
    train: Rows,
    test: Rows,
    options: Options,
    folder: Path,
    *,
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    measure: Callable[[nn.Module], dict[str, Any]] | None = None,
    progress: Callable[[At], None] | None = None,
    tensorboard: bool = False,
) -> Outcome:
    """Train a model, and leave a checkpoint that a later call resumes from.

    Seed with :func:`seed_everything` before the model is made: its first weights come from PyTorch's generator.

    Parameters
    ----------
    model : Module
        Trained in place.
    train, test : Rows
        ``test`` is evaluated after every epoch.
    options : Options
    folder : Path
        That exists; the checkpoint is written there, and TensorBoard's files.
    resume : bool
        Go on from the checkpoint in ``folder``, where there is one.
    identity : dict, optional
        What else must be equal for that, e.g. the hash of the data.
    augment : callable, optional
        Of a batch of inputs, with randomness from PyTorch's generator only.
    measure : callable, optional
        Of the model after every epoch (and before the first, as epoch 0); what it returns joins the history.
    progress : callable, optional
        Called after every step.
    tensorboard : bool
        Write TensorBoard files too.

    Returns
    -------
    Outcome
        Of status "interrupted" after Ctrl-C, which ends the step and saves; a second Ctrl-C ends at once.

    Raises
    ------
    ProblemError
        If there is nothing to train on, the checkpoint is that of another run, or TensorBoard is not installed.
    """
    if not len(train) or not len(test):
        raise ProblemError(
            f"rows: {len(train)} to train on and {len(test)} to test on found, at least 1 of each wanted"
        )
    device, path = torch.device(options.device), folder / CHECKPOINT
    model.to(device)
    optimizer = make_optimizer(model, options)
    known = {**options.identity(), **(identity or {}), "rows": [len(train), len(test)]}
    writer = _tensorboard(folder) if tensorboard else None
    position = Position()
    history: list[dict[str, Any]] = []
    if resume and path.exists():
        position, history = load_checkpoint(path, model, optimizer, known)
    clock = _Clock(position.seconds)
    called: nn.Module = torch.compile(model) if options.compile else model  # type: ignore[assignment]
    batches = -(-len(train) // options.batch)
    steps = options.epochs * batches
    if not history:
        history.append(
            {"epoch": 0, "step": 0, "seconds": 0.0, **_evaluated(model, test, options), **_measured(measure, model)}
        )
        _log(writer, history[0])
    status = "finished"

    def save() -> None:
        position.seconds = clock.read()
        save_checkpoint(path, model, optimizer, position, history, known)

    with _interruptions() as interrupted:
        while position.epoch < options.epochs and not _reached(history, options):
            order = data_order(len(train), options.seed, position.epoch)
            model.train()
            while position.batch < batches:
                rows = order[position.batch * options.batch : (position.batch + 1) * options.batch]
                inputs, labels = train.batch(rows, device, trim=not options.compile)
                if augment is not None:
                    inputs = augment(inputs)
                with _precision(device, options.precision):
                    outputs = called(inputs)
                of_rows = losses(outputs, labels)
                loss = of_rows.sum() if options.reduction == "sum" else of_rows.mean()
                total = float(of_rows.detach().sum())
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                if not math.isfinite(total) or not _stepped(optimizer):
                    status = "diverged"
                    break
                position.batch += 1
                position.step += 1
                position.loss += total
                position.correct += int((answers(outputs.detach()) == labels).sum())
                position.seen += len(rows)
                if progress is not None:
                    progress(At(position.step, steps, total / len(rows), position.epoch + 1))
                if interrupted.is_set():
                    status = "interrupted"
                    break
                if position.step % options.checkpoint_every == 0 and position.batch < batches:
                    save()
            if status != "finished":
                break
            row = {
                "epoch": position.epoch + 1,
                "step": position.step,
                "seconds": clock.read(),
                "train_loss": position.loss / position.seen,
                "train_accuracy": position.correct / position.seen,
                **_evaluated(model, test, options),
                **_measured(measure, model),
            }
            if not math.isfinite(row["test_loss"]):
                status = "diverged"
                break
            history.append(row)
            _log(writer, row)
            position.epoch, position.batch = position.epoch + 1, 0
            position.loss, position.correct, position.seen = 0.0, 0, 0
            save()
            if interrupted.is_set() and position.epoch < options.epochs:
                status = "interrupted"
                break
    if status == "interrupted":
        save()
    if writer is not None:
        writer.close()
    return Outcome(status, history, position.step, clock.read())


class _Clock:
    def __init__(self, before: float) -> None:
        self.before, self.start = before, time.perf_counter()

    def read(self) -> float:
        return self.before + time.perf_counter() - self.start


def _evaluated(model: nn.Module, test: Rows, options: Options) -> dict[str, float]:
    loss, accuracy = evaluate(model, test, options.device, options.precision)
    return {"test_loss": loss, "test_accuracy": accuracy}


def _measured(measure: Callable[[nn.Module], dict[str, Any]] | None, model: nn.Module) -> dict[str, Any]:
    return {} if measure is None else measure(model)


def _reached(history: list[dict[str, Any]], options: Options) -> bool:
    return options.stop_at is not None and history[-1].get("train_accuracy", 0.0) >= options.stop_at


def _stepped(optimizer: torch.optim.Optimizer) -> bool:
    """Take the step, unless a gradient is not finite."""
    if not isinstance(optimizer, MirrorDescent):
        gradients = [x.grad for group in optimizer.param_groups for x in group["params"] if x.grad is not None]
        if not bool(torch.isfinite(torch.stack(torch._foreach_norm(gradients))).all()):
            return False
    try:
        optimizer.step()
    except NonFiniteGradientError:
        return False
    return True


def _precision(device: torch.device, precision: str) -> contextlib.AbstractContextManager[Any]:
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextlib.contextmanager
def _interruptions() -> Iterator[threading.Event]:
    """Ctrl-C sets the event, so that no step is cut in half; a second one ends at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(*_: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ProblemError("tensorboard: is not installed; pip install 'attsvm[torch]'") from None
    return SummaryWriter(str(folder / "tensorboard"))


def _log(writer: Any, row: dict[str, Any]) -> None:
    if writer is not None:
        for name, value in row.items():
            if isinstance(value, int | float) and name not in ("epoch", "step"):
                writer.add_scalar(name, value, row["step"])
        writer.flush()
