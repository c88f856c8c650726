"""``attsvm.inspect.AttentionMonitor``: measures of every head during training."""

import contextlib
import os
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attsvm._utils.checks import check_integer, check_number
from attsvm._utils.extensions import import_object
from attsvm._utils.progress import counted
from attsvm.errors import ProblemError
from attsvm.inspect.attention_functions import attention_functions
from attsvm.inspect.capture import FusedCalls
from attsvm.inspect.families.base import Family
from attsvm.inspect.inspection import inspect
from attsvm.inspect.layers import AttentionLayer, attention_layers
from attsvm.inspect.monitoring.callbacks import lightning_callback, trainer_callback
from attsvm.inspect.monitoring.logs import CsvLog, Log, Record, TensorBoardLog, ZarrLog
from attsvm.inspect.monitoring.measures import OF_CALLS, OF_WEIGHTS, of_call, of_weights


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
        With attention of a known family, which calls ``scaled_dot_product_attention``. The queries and keys of a model
        of ``transformers`` that does not, as with eager attention or in BLOOM, are computed a second time.
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
        ``margin_upper``, the interval of the margin ratio after the step. NaN where a pass did not use the layer.
    seconds : float
        Spent in records.

    Raises
    ------
    ProblemError
        If the model has no attention of a known family, or, at a record, an attention layer of another model than
        those of ``transformers`` does not call ``scaled_dot_product_attention``.

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
    >>> import torch
    >>> from attsvm.inspect import AttentionMonitor
    >>> from attsvm.inspect.attention_only import AttentionOnly
    >>> _ = torch.manual_seed(0)
    >>> model = AttentionOnly()
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> with AttentionMonitor(model, every=2) as monitor:
    ...     for _ in range(4):
    ...         optimizer.zero_grad()
    ...         model(torch.randint(64, (2, 8))).square().mean().backward()
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
        self.log = _log(log)
        self.heads: list[str] = []
        self.records: list[tuple[int, Record]] = []
        self.seconds = 0.0
        self.steps = 0
        self._warned = False
        self._mode: FusedCalls | None = None
        self._reading: dict[str, tuple[Tensor, np.ndarray]] = {}
        self._read: dict[str, tuple[Tensor, np.ndarray]] = {}
        self._stack = contextlib.ExitStack()
        self._hooks = [
            model.register_forward_pre_hook(self._before),
            # of several monitors, the last one that began to read is the first one that ends
            model.register_forward_hook(self._after, always_call=True, prepend=True),
            model.register_forward_hook(self._finished),
        ]

    def __repr__(self) -> str:
        layers, records = len(self.layers), len(self.records)
        return (
            f"AttentionMonitor({type(self.model).__name__}: {layers} attention layer{'s' * (layers != 1)}, every"
            f" {self.every} steps; {records} record{'s' * (records != 1)} after {self.steps} steps)"
        )

    def step(self) -> None:
        """Count a step of the optimiser, and finish the record of this step if there is one."""
        if self._hooks and self.steps % self.every == 0:
            start = time.perf_counter()
            self._record()
            self.seconds += time.perf_counter() - start
        self.steps += 1

    def trainer_callback(self) -> Any:
        """A callback for ``transformers.Trainer``, which calls :meth:`step` after each step."""
        return trainer_callback(self)

    def lightning_callback(self) -> Any:
        """A callback for a Trainer of Lightning, which calls :meth:`step` after each step of the optimiser."""
        return lightning_callback(self)

    def page(self, folder: str | Path, *, force: bool = False) -> None:
        """Write a page over the steps of ``records``: ``index.html``, ``figures/*.png`` and ``result.json``.

        ``attsvm monitor`` writes the same page from a CSV file or a zarr group.

        Parameters
        ----------
        folder : str or Path
        force : bool
            Replace the folder if it holds an earlier result.

        Raises
        ------
        ProblemError
            If nothing is recorded yet, or the folder exists and may not be replaced.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import torch
        >>> from attsvm.inspect import AttentionMonitor
        >>> from attsvm.inspect.attention_only import AttentionOnly
        >>> model = AttentionOnly()
        >>> with AttentionMonitor(model, every=1) as monitor:
        ...     _ = model(torch.randint(64, (2, 8)))
        ...     monitor.step()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.page(Path(folder) / "heads")
        ...     (Path(folder) / "heads" / "index.html").exists()
        True
        """
        write: Any = import_object("attsvm.pages.monitor:write_records")  # pages are a later layer
        command = f"AttentionMonitor(model, every={self.every}).page({str(folder)!r})"
        write(folder, force, self.heads, self.records, command)

    def close(self) -> None:
        """Leave the model as it was, and close the log."""
        while self._hooks:
            self._hooks.pop().remove()
        self._stack.close()
        if self.log is not None:
            self.log.close()

    def __enter__(self) -> "AttentionMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _before(self, model: nn.Module, arguments: tuple[Any, ...]) -> None:
        """Read the attention of this pass, unless an earlier one of the step was read, or no record is due."""
        self._reading = {}
        if self.steps % self.every or self._read or not model.training:
            return
        self._mode = self._stack.enter_context(FusedCalls())
        self._stack.enter_context(attention_functions(model, self._mode.keep))
        for layer in self.layers:
            hook = layer.module.register_forward_pre_hook(self._forget)
            self._stack.callback(hook.remove)
            # before FSDP's own hook, which takes the weights away
            hook = layer.module.register_forward_hook(self._reader(layer), with_kwargs=True, prepend=True)
            self._stack.callback(hook.remove)

    def _after(self, model: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        self._stack.close()
        self._mode = None

    def _finished(self, model: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """Keep what was read of a pass that raised no error."""
        self._read = self._read or self._reading

    def _forget(self, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        assert self._mode is not None
        self._mode.last = None

    def _reader(self, layer: AttentionLayer) -> Any:
        def read(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> None:
            start = time.perf_counter()
            call = None if self._mode is None else self._mode.last
            with torch.no_grad():
                call = call or layer.family.rebuilt_call(module, arguments, keywords)
                if call is None:
                    raise ProblemError(
                        f"model: {layer.name} does not call scaled_dot_product_attention, and {layer.family} does not "
                        "rebuild its attention"
                    )
                self._reading[layer.name] = of_call(call), of_weights(layer.family.projections(layer.module))
            self.seconds += time.perf_counter() - start

        return read

    def _record(self) -> None:
        """Join what was read of each layer, and solve for the margins."""
        read, self._read = self._read, {}
        self._warn_of([layer.name for layer in self.layers if layer.name not in read])
        if not read:
            return
        columns: dict[str, np.ndarray] = {}
        for number, layer in enumerate(self.layers):
            if layer.name in read:
                of_attention, weights = read[layer.name]
                values = np.concatenate([of_attention.double().cpu().numpy(), weights])
                columns |= {f"{number}.{head}": column for head, column in enumerate(values.T)}
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


def _log(given: Any) -> Log | None:
    """A log from a path, a writer of TensorBoard or a log."""
    if given is None or isinstance(given, Log):
        return given
    if hasattr(given, "add_scalar"):
        return TensorBoardLog(given)
    endings: dict[str, type[CsvLog | ZarrLog]] = {".csv": CsvLog, ".zarr": ZarrLog}
    if isinstance(given, str | Path) and Path(given).suffix in endings:
        return endings[Path(given).suffix](given) if _rank() == 0 else None
    known: Iterable[str] = endings
    raise ProblemError(
        f"log: expected a path that ends with {' or '.join(known)}, a Log or a SummaryWriter, got {given!r}"
    )


def _rank() -> int:
    """The rank of this process, also before a launcher's processes have formed their group."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0)
