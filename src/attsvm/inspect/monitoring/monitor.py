"""``attsvm.inspect.AttentionMonitor``: measures of every head during training."""

import time
import warnings
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from torch import nn

from attsvm._utils.checks import check_integer, check_number
from attsvm._utils.progress import counted
from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family
from attsvm.inspect.inspection import inspect
from attsvm.inspect.layers import attention_layers
from attsvm.inspect.monitoring.logs import Record, open_log
from attsvm.inspect.monitoring.passes import OF_CALLS, OF_WEIGHTS, PassReader


@dataclass(frozen=True)
class Margins:
    """When and how a monitor solves for margins."""

    batch: Any  # arguments of the model, as for :func:`attsvm.inspect.inspect`
    every: int  # steps from one solve to the next, a multiple of those of the monitor
    gap: float = 0.1  # required relative width of each interval
    queries: int = 256  # queries that are inspected in each layer


class AttentionMonitor:
    """Records measures of every attention head while a model is trained.

    In the first forward pass of every so many steps that raises no error it reads the calls of
    ``scaled_dot_product_attention``, or of the attention functions of ``transformers``, as FlashAttention; the model
    computes as it does without the monitor, and the other passes are untouched. Call :meth:`step` after each step of
    the optimiser, or pass :meth:`trainer_callback` to a Trainer of ``transformers`` or :meth:`lightning_callback` to
    one of Lightning.

    Parameters
    ----------
    model : torch.nn.Module
        As for :func:`attsvm.inspect.inspect`. Queries and keys of a model that computes its attention itself, as BLOOM,
        are computed a second time.
    every : int
        Steps from one record to the next.
    log : str, Path, Log or SummaryWriter, optional
        Where records are written: a file ``*.csv``, a group ``*.zarr`` or a writer of TensorBoard. They are kept in
        ``records`` as well. Of several processes only that of rank 0 opens a path; a ``Log`` is always written to.
    margins : attsvm.inspect.monitoring.Margins, optional
        A held batch on which the margin ratio of every head is bounded, and how often.
    family : str, Family or subclass of Family, optional
        As for :func:`attsvm.inspect.inspect`.

    Attributes
    ----------
    heads : list of str
        "layer.head" of every head that was read; the records hold one value for each.
    records : list of (int, dict of str to ndarray)
        Step and measures: ``largest_logit``; ``largest_probability``, ``entropy`` and ``first_share`` (of the attention
        to the first token), means over at most 64 queries of at most 8 sequences, without padding; ``spectral_norm``,
        ``frobenius_norm`` and ``effective_rank`` of W_K W_Q'/√d_h without biases; ``margin_lower`` and
        ``margin_upper``, the interval of the margin ratio after the step. NaN where a pass did not use the layer,
        or W is not known.
    seconds : float
        Spent in records.

    Raises
    ------
    ProblemError
        If the model has no attention of a known family, or, at a record, the attention of a layer cannot be read.

    Warns
    -----
    RuntimeWarning
        Once, if an attention layer did not run in a pass that is recorded, or there was no such pass.

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
        log: Any = None,
        margins: Margins | None = None,
        family: str | Family | type[Family] | None = None,
    ) -> None:
        check_integer("every", every, 1)
        if margins is not None:
            check_integer("margins.every", margins.every, 1)
            check_number("margins.gap", margins.gap, "a number between 0 and 1", lambda x: 0 < x < 1)
            if margins.every % every:
                raise ProblemError(f"margins.every: expected a multiple of every = {every}, got {margins.every}")
        self.model, self.every, self.margins, self.family = model, every, margins, family
        self.layers = attention_layers(model, family)
        self.log = open_log(log)
        self.heads: list[str] = []
        self.records: list[tuple[int, Record]] = []
        self._seconds = 0.0  # without those of the reader
        self.steps = 0
        self._warned = False
        self._passes = PassReader(model, self.layers, lambda: self.steps % self.every == 0)

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

    def step(self) -> None:
        """Count a step of the optimiser, and finish the record of this step if there is one."""
        if self._passes.attached and self.steps % self.every == 0:
            start = time.perf_counter()
            self._record()
            self._seconds += time.perf_counter() - start
        self.steps += 1

    def trainer_callback(self) -> Any:
        """A callback for ``transformers.Trainer``, which calls :meth:`step` after each step."""
        from transformers import TrainerCallback

        monitor = self

        class MonitorCallback(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
                monitor.step()

            def on_train_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
                monitor.close()

        return MonitorCallback()

    def lightning_callback(self) -> Any:
        """A callback for a Trainer of Lightning, which calls :meth:`step` after each step of the optimiser."""
        from lightning.pytorch import Callback

        monitor = self

        class MonitorCallback(Callback):
            def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
                # with accumulated gradients not every batch has a step
                while monitor.steps < trainer.global_step:
                    monitor.step()

            def on_train_end(self, trainer: Any, pl_module: Any) -> None:
                monitor.close()

        return MonitorCallback()

    def close(self) -> None:
        """Leave the model as it was, and close the log."""
        self._passes.close()
        if self.log is not None:
            self.log.close()

    def __enter__(self) -> "AttentionMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self) -> None:
        """Join what was read of each layer, and solve for the margins."""
        read = self._passes.take()
        self._warn_of([layer.name for layer in self.layers if layer.name not in read])
        if not read:
            return
        columns: dict[str, np.ndarray] = {}
        for number, layer in enumerate(self.layers):
            if layer.name in read:
                columns |= {f"{number}.{head}": column for head, column in enumerate(read[layer.name].T)}
        new = [head for head in columns if head not in self.heads]
        self.heads += new
        if new:  # of a layer that earlier passes did not use
            nothing = np.full(len(new), np.nan)
            self.records = [
                (step, {name: np.append(values, nothing) for name, values in record.items()})
                for step, record in self.records
            ]
        names = (*OF_CALLS, *OF_WEIGHTS)
        unread = np.full(len(names), np.nan)
        table = np.stack([columns.get(head, unread) for head in self.heads], axis=1)
        record = dict(zip(names, table, strict=True))
        if self.margins is not None and self.steps % self.margins.every == 0:
            record |= self._margin_record(self.margins)
        self.records.append((self.steps, record))
        if self.log is not None:
            self.log.write(self.steps, list(self.heads), record)

    def _warn_of(self, missing: list[str]) -> None:
        if missing and not self._warned:
            self._warned = True
            more = ", …" if len(missing) > 1 else ""
            warnings.warn(
                f"model: {len(missing)} of {counted(len(self.layers), 'attention layer')} ({missing[0]}{more}) ran in "
                f"no finished forward pass of step {self.steps} in training mode, so their heads are not recorded; "
                "monitor the module whose forward is called, and make a new monitor after a layer is replaced",
                RuntimeWarning,
                stacklevel=4,
            )

    def _margin_record(self, margins: Margins) -> Record:
        queries, gap = margins.queries, margins.gap
        found = inspect(self.model, margins.batch, family=self.family, queries=queries, gap=gap, workers=1)
        ends = {f"{one.layer}.{one.head}": one.margin for one in found.heads}

        def end(name: str) -> np.ndarray:
            values = [getattr(ends.get(head), name, None) for head in self.heads]
            return np.array([np.nan if value is None else value for value in values])

        return {"margin_lower": end("lower"), "margin_upper": end("upper")}
