"""``attsvm.inspect.AttentionMonitor``: measures of every head during training."""

import csv
import os
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from attsvm._utils.checks import as_floats, check_integer
from attsvm._utils.files import cannot_be_written, file_to_write
from attsvm._utils.progress import counted
from attsvm._utils.text import head_label
from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.passes import OF_CALLS, OF_WEIGHTS, PassReader

Record = dict[str, np.ndarray]
"""One value for each head, by name of the measure; NaN where it is not defined."""

Rows = list[tuple[int, str, str, float]]
"""Step, head, measure and value, where it is defined."""


MISSING = (
    "call model.train() before the training, monitor the module whose forward is called, and make a new monitor after"
    " a layer is replaced"
)
UNLIKE = "it depends on something that cannot be read, such as an attention function that changes it"
"""What to do about layers that are not recorded."""


class AttentionMonitor:
    """Records measures of every attention head while a model is trained.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    In the first forward pass of every so many steps that raises no error it reads the calls of
    ``scaled_dot_product_attention``, or of the attention functions of ``transformers``, as FlashAttention; the model
    computes as it does without the monitor, but without ``torch.compile``, and the passes of other steps are untouched.
    No error in reading ends a step of the training. Call :meth:`step` after each step of the optimiser, or pass
    :meth:`trainer_callback` to a Trainer of ``transformers`` or :meth:`lightning_callback` to one of Lightning.

    Parameters
    ----------
    model : torch.nn.Module
        As for :func:`attsvm.inspect.inspect`. Queries and keys of a model that computes its attention itself, as BLOOM,
        are computed a second time.
    every : int
        Steps from one record to the next.
    log : str, Path or callable, optional
        Where records are written besides ``records``: a file ``*.csv``, which only the process of rank 0 opens; or a
        function that is called with the rows (step, head, measure, value) of each record.
    family : str, Family or subclass of Family, optional
        As for :func:`attsvm.inspect.inspect`.

    Attributes
    ----------
    heads : list of str
        "layer.head" of every head that was read, with the name of the layer if the model has several kinds, as
        encoder, decoder and towers; the records hold one value for each.
    records : list of (int, dict of str to ndarray)
        Step and measures: ``largest_logit``; ``largest_probability``, ``entropy`` and ``first_share`` (of the attention
        to the first token), means over the queries that may attend to several tokens, of at most 64 queries of at most
        8 sequences, without padding; ``spectral_norm``, ``frobenius_norm`` and ``effective_rank`` of W_K W_Q'/√d_h
        without biases; and those given to :meth:`step`. NaN where a pass did not use the layer, no query has a choice,
        or W is not known.
    seconds : float
        Spent in records.

    Raises
    ------
    ProblemError
        If the model has no attention of a known family, or the log cannot be written.

    Warns
    -----
    RuntimeWarning
        Once, if an attention layer did not run in a pass that is recorded, there was no such pass, the attention of a
        layer is not that of its queries, keys and mask, or it or its weights cannot be read, and why.

    See Also
    --------
    attsvm.inspect.inspect : The measures of a trained model in detail.

    References
    ----------
    Zhai et al. (2023), *Stabilizing Transformer Training by Preventing Attention Entropy Collapse*.

    Examples
    --------
    >>> import torch, transformers
    >>> from attsvm.inspect import AttentionMonitor
    >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
    >>> model = transformers.GPT2LMHeadModel(config).train()
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with AttentionMonitor(model, every=2) as monitor:
    ...     for _ in range(4):
    ...         optimizer.zero_grad()
    ...         model(torch.randint(64, (2, 8))).logits.square().mean().backward()
    ...         optimizer.step()
    ...         monitor.step()
    >>> [step for step, _ in monitor.records]
    [0, 2]
    >>> monitor.records[0][1]["entropy"].shape
    (8,)
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 100,
        *,
        log: str | Path | Callable[[Rows], object] | None = None,
        family: str | Family | type[Family] | None = None,
    ) -> None:
        check_integer("every", every, 1)
        self.model, self.every = model, every
        self.layers = attention_layers(model, family)
        self.heads: list[str] = []
        self.records: list[tuple[int, Record]] = []
        self._seconds = 0.0  # without those of the reader
        self.steps = 0
        self._warned = False
        self.log = log if log is None or callable(log) else _csv_log(log)
        self._passes = PassReader(model, self.layers)
        self._passes.begin_step(True)

    def __repr__(self) -> str:
        layers, records = len(self.layers), len(self.records)
        return (
            f"AttentionMonitor({type(self.model).__name__}: {layers} attention layer{'s' * (layers != 1)}, every"
            f" {self.every} steps; {records} record{'s' * (records != 1)} after {self.steps} steps)"
        )

    @property
    def seconds(self) -> float:
        """Time spent in records."""
        return self._seconds + self._passes.seconds

    def step(self, measures: Mapping[str, Any] | None = None) -> None:
        """Count a step of the optimiser, and finish the record for this step if there is one.

        Parameters
        ----------
        measures : mapping of str to array of shape (heads,), optional
            More of this record, in the order of ``heads``, such as ``margin_lower`` and ``margin_upper`` of an
            inspection of a held batch.

        Raises
        ------
        ProblemError
            If a measure does not have one number for each head.
        """
        if self._passes.is_open and self.steps % self.every == 0:
            start = time.perf_counter()
            self._record(measures or {})
            self._seconds += time.perf_counter() - start
        self.steps += 1
        self._passes.begin_step(self.steps % self.every == 0)

    def trainer_callback(self) -> Any:
        """A callback for ``transformers.Trainer``, which calls :meth:`step` after each step."""
        from transformers import TrainerCallback

        ends = {"on_step_end": lambda *_, **__: self.step(), "on_train_end": lambda *_, **__: self.close()}
        return type("MonitorCallback", (TrainerCallback,), ends)()

    def lightning_callback(self) -> Any:
        """A callback for a Trainer of Lightning, which calls :meth:`step` after each step of the optimiser."""
        from lightning.pytorch import Callback

        def count(_: Any, trainer: Any, *__: Any, **___: Any) -> None:
            while self.steps < trainer.global_step:  # with accumulated gradients not every batch has a step
                self.step()

        ends = {"on_train_batch_end": count, "on_train_end": lambda *_, **__: self.close()}
        return type("MonitorCallback", (Callback,), ends)()

    def close(self) -> None:
        """Remove all hooks from the model."""
        self._passes.close()

    def __enter__(self) -> "AttentionMonitor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _record(self, more: Mapping[str, Any]) -> None:
        """Join what was read of each layer, and what is given."""
        read = self._passes.take()
        self._warn_of(list(read))
        if not read:
            return
        columns: dict[str, np.ndarray] = {}
        names = [layer.name for layer in self.layers]
        for number, name in enumerate(names):
            if name in read:
                behind = head_label(names, number, 0).removeprefix(f"{number}.0")
                columns |= {f"{number}.{head}{behind}": column for head, column in enumerate(read[name].T)}
        new = [head for head in columns if head not in self.heads]
        self.heads += new
        if new:  # of a layer that earlier passes did not use
            nothing = np.full(len(new), np.nan)
            self.records = [
                (step, {name: np.append(values, nothing) for name, values in record.items()})
                for step, record in self.records
            ]
        unread = np.full(len(OF_CALLS) + len(OF_WEIGHTS), np.nan)
        table = np.stack([columns.get(head, unread) for head in self.heads], axis=1)
        record = dict(zip((*OF_CALLS, *OF_WEIGHTS), table, strict=True))
        for name, values in more.items():
            record[name] = as_floats(f"measures[{name!r}]", values)
            if record[name].shape != (len(self.heads),):
                raise ProblemError(
                    f"measures[{name!r}]: expected {len(self.heads)} values, one for each head, got shape"
                    f" {record[name].shape}"
                )
        self.records.append((self.steps, record))
        if self.log is not None:
            self.log(
                [
                    (self.steps, head, name, float(value))
                    for name, values in record.items()
                    for head, value in zip(self.heads, values, strict=True)
                    if np.isfinite(value)
                ]
            )

    def _warn_of(self, read: list[str]) -> None:
        passes = self._passes
        known = (*read, *passes.unlike, *passes.unread)
        missing = [layer.name for layer in self.layers if layer.name not in known]
        left_out = "so their heads are not recorded"
        reasons: tuple[tuple[list[str] | dict[str, str], str, str], ...] = (
            (
                missing,
                f"did not run in a complete forward pass of step {self.steps} in training mode, {left_out}",
                MISSING,
            ),
            (passes.unread, f"cannot be read, {left_out}", ""),
            (passes.unlike, f"did not attend as their queries, keys and mask imply, {left_out}", UNLIKE),
            (passes.unknown, "computed queries and keys by weights that cannot be read, so norms of W are NaN", ""),
        )
        for names, what, advice in reasons:
            if names and not self._warned:
                self._warned = True
                first, more = next(iter(names)), ", …" if len(names) > 1 else ""
                because = names[first].removeprefix("model: ") if isinstance(names, dict) else advice
                warnings.warn(
                    f"model: {len(names)} of {counted(len(self.layers), 'attention layer')} ({first}{more}) {what};"
                    f" {because}",
                    RuntimeWarning,
                    stacklevel=4,
                )


def _csv_log(path: str | Path) -> Callable[[Rows], object] | None:
    """What appends rows to a CSV file, which replaces an existing one; None in processes of other ranks."""
    if not isinstance(path, str | Path) or Path(path).suffix != ".csv":
        raise ProblemError(f"log: expected a path that ends with .csv, or a function, got {path!r}")
    if _rank() != 0:
        return None
    place = file_to_write(path)

    def write(rows: Rows) -> None:
        with place.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)

    with cannot_be_written(path):
        place.write_text("step,head,measure,value\n", encoding="utf-8")
    return write


def _rank() -> int:
    """The rank of this process, also before a launcher's processes have formed their group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0)
