"""The result of an inspection: numbers for every head, and what can be computed from its model again."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np

from attsvm._utils.checks import check_flag, check_integer, check_number, check_seed
from attsvm._utils.progress import Progress, shown
from attsvm._utils.shapes import Float, Int
from attsvm.errors import ProblemError
from attsvm.inspect.capture import ModelAndBatch
from attsvm.inspect.causal import DRAWS
from attsvm.inspect.edits.edit import Edit, make_edit
from attsvm.inspect.edits.scan import Scan, scan_heads
from attsvm.inspect.edits.targets import Forgotten, Request, Targets
from attsvm.inspect.effects import Effects, head_effects
from attsvm.inspect.explanation import Explanation, check_explainable, explained
from attsvm.inspect.features import Features
from attsvm.inspect.grid import HeadGrid, Names
from attsvm.inspect.heads import COLUMNS, Head, head_columns
from attsvm.inspect.measures import HEAD_SETS, MEASURES, Measure, selected_tokens
from attsvm.inspect.robustness import Robustness, robustness
from attsvm.inspect.rotary_margin import RotaryMargin, rotary_margin
from attsvm.inspect.solves import SolveSettings, Support, default_workers
from attsvm.inspect.view import HeadView, ReadingDirection, reading_directions, view_head
from attsvm.inspect.weights import Layer
from attsvm.results import Result, Status, per_trial, shared, unsaved

SHOWN = 8
"""Heads of a set that the summary in notebooks names."""


class Available(NamedTuple):
    """What is known of the heads of a layer."""

    # W: "acts on tokens"; "before the rotation" by rotary positions, or "of coordinates without rotation"; "without the
    # norms" of queries and keys, whose gains are a part of it; or "not known". With W there are directions, and changes
    # between two models.
    weights: str
    factors: bool  # whether the smallest change of the key and query weights is bounded
    keys: bool  # whether the smallest change of the input of a key is known
    reasons: bool  # whether logits are split by origin


class LayerGroup(NamedTuple):
    """Layers that see the same queries of as many sequences and tokens; those of another tower may see others."""

    layers: list[int]
    num_sequences: int
    num_tokens: int  # over all sequences, without padding, as that of queries
    num_queries: int
    positions: Int[np.ndarray, "n Q"]  # of the queries in their padded sequences, −1 where there is no query

    @classmethod
    def add(cls, groups: "list[LayerGroup]", number: int, layer: Layer) -> None:
        """Add a layer to its group, or to a new one."""
        counts = len(layer.allowed), int(np.count_nonzero(layer.there)), int(np.count_nonzero(layer.positions >= 0))
        for group in groups:
            if group[1:4] == counts and np.array_equal(group.positions, layer.positions):
                group.layers.append(number)
                return
        groups.append(cls([number], *counts, layer.positions))


@dataclass(frozen=True, eq=False, repr=False)
class Inspection(Result):
    """The attention heads of a model on a batch. The only batch axis counts the heads, layer by layer.

    Attributes
    ----------
    status : ndarray of str, shape (heads,)
        As ``Head.status``.
    layer, head : int ndarray, shape (heads,)
        Counted from 0; ``head`` counts within its layer.
    selected : int ndarray, shape (heads, n, Q)
        The token with the largest probability for each query; −1 where there is no query. Queries and tokens have
        their positions in the padded input, as in the attention of ``transformers``. With a sample of the queries,
        column q is the query at ``positions[i, q]`` of sequence i, of the group of the layer.
    numbers : dict of str to ndarray, shape (heads,)
        By the name of the measure, those of ``measures``; NaN where one is not defined.
    margins : dict of str to ndarray, shape (heads,), or None
        The attributes of each ``MarginInterval``, NaN where one is None or not solved. None if margins were not
        requested, or none is solved.
    rebuilt_error : ndarray, shape (heads,)
        Largest difference between the model's own attention and the one computed from tokens and W; where the model
        computes no attention but what it makes of the values, or has a sink, of that, divided by the largest value. NaN
        where nothing of the model was there to compare with.
    model, family : str
        Class of the model, and the family as which its first layer was read.
    layer_names : list of str
        All attention layers of the model.
    num_sequences, num_tokens, num_queries : int
        Of the first group; tokens and queries over all sequences, without padding.
    groups : list of LayerGroup
        The layers that were inspected, by what they see: layers of a tower of pictures see other sequences than those
        of the text, and layers with windows see parts of pictures as sequences of their own. Each group has the fields
        ``layers``, ``num_sequences``, ``num_tokens``, ``num_queries`` and ``positions``.
    not_run : list of str
        Attention layers of the model that the batch does not run, such as those of pictures if there is only text.
        They are left out.
    sampled : bool
        Whether ``num_queries`` are only some of the queries.
    rotary : bool
        Whether W is I/√d_h over the keys and queries of each head, in some layer.
    positions : int ndarray, shape (n, Q)
        Positions of the queries in their padded sequences, in the first group; −1 where there is no query.
    biased : bool
        Whether the logits of some layer have biases, of positions or of positions and tokens, which are a part of W;
        see :func:`attsvm.inspect.inspect`.
    gap : float
        Required relative width of the margins' intervals.
    seed : int
    special_known : bool
        Whether it is known which tokens are special.
    interrupted : bool
        Whether something is missing, because the callback or Ctrl-C stopped the inspection: margins, whose heads have
        the status ``interrupted``; or heads, if it was stopped while they were measured.
    detail : HeadView or None
        That of the head ``view=``. Not saved.
    supports : dict of (int, int) to int ndarray, shape (support, 3), or None
        By layer and head, for the heads that are solved: sequence, query and token of each support token of the
        Att-SVM, to the precision of the interval. None if there is no Att-SVM. Not saved.
    source : Source or None
        The model and the batch, which :meth:`explain` needs. Not saved.

    See Also
    --------
    attsvm.inspect.inspect : Makes one.

    Notes
    -----
    ``view``, ``explain``, ``reading_directions``, ``available``, ``robustness``, ``edit`` and ``scan`` run the model
    again. They raise ProblemError for an inspection that was loaded from a file, and for a layer or a head that there
    is not.

    Examples
    --------
    >>> import torch
    >>> import attsvm.torch
    >>> _ = torch.manual_seed(0)
    >>> attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
    >>> found = attsvm.inspect.inspect(attention, (tokens, tokens, tokens))
    >>> found.layer, found.head, found.selected.shape
    (array([0, 0]), array([0, 1]), (2, 3, 4))
    >>> found.measure("margin_ratio").shape
    (1, 2)
    >>> found.sets()
    {'none of these': [(0, 0), (0, 1)]}
    """

    kind: ClassVar[str] = "inspection"
    counted: ClassVar[str] = "heads"
    measures: ClassVar[tuple[Measure, ...]] = MEASURES

    layer: Int[np.ndarray, " heads"] = per_trial()
    head: Int[np.ndarray, " heads"] = per_trial()
    selected: Int[np.ndarray, "heads n Q"] = per_trial()
    numbers: dict[str, Float[np.ndarray, " heads"]] = per_trial()
    rebuilt_error: Float[np.ndarray, " heads"] = per_trial()
    model: str = shared()
    family: str = shared()
    layer_names: list[str] = shared()
    num_sequences: int = shared()
    num_tokens: int = shared()
    num_queries: int = shared()
    sampled: bool = shared()
    rotary: bool = shared()
    positions: Int[np.ndarray, "n Q"] = shared(read=lambda rows: np.array(rows, dtype=np.int64))
    gap: float = shared()
    seed: int = shared()
    special_known: bool = shared()
    margins: dict[str, Float[np.ndarray, " heads"]] | None = per_trial(None)
    interrupted: bool = shared(False)
    biased: bool = shared(False)
    groups: list[LayerGroup] = shared(
        (), write=lambda groups: [group._asdict() for group in groups], read=lambda rows: [*map(_group_of, rows)]
    )
    not_run: list[str] = shared(())
    detail: HeadView | None = unsaved()
    supports: dict[tuple[int, int], Support | None] | None = unsaved()
    source: ModelAndBatch | None = unsaved()

    @classmethod
    def of_heads(cls, heads: list[Head], **about: Any) -> "Inspection":
        """An inspection from its heads; ``about`` are the attributes that do not depend on the head."""
        return cls(**head_columns(heads), **about)

    @property
    def heads(self) -> list[Head]:
        """Every head, layer by layer."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        heads = (Head.of_columns(i, **columns) for i in np.ndindex(self.batch_shape))
        # the array of all heads is as wide as the widest group
        sizes = {layer: group.positions.shape for group in self.groups for layer in group.layers}
        return [
            replace(one, selected=one.selected[: sizes[one.layer][0], : sizes[one.layer][1]])
            if one.layer in sizes
            else one
            for one in heads
        ]

    def measure(self, name: str) -> Float[np.ndarray, "layers heads"]:
        """One measure of every head; NaN where it is not defined or was not requested.

        ``margin_ratio`` is the upper end of its interval. It is not defined where the tokens of each query are one
        token or copies of it, and where no weights keep the selection.

        Raises
        ------
        ProblemError
            If there is no such measure.
        """
        if name not in {measure.name for measure in MEASURES}:
            raise ProblemError(f"name: expected one of {', '.join(m.name for m in MEASURES)}, got {name!r}")
        layers, heads = np.atleast_1d(self.layer), np.atleast_1d(self.head)
        values = np.full((len(self.layer_names), 1 + int(heads.max())), np.nan)
        if name in self.numbers:
            values[layers, heads] = self.numbers[name]
        return values

    def to_frame(self) -> Any:
        """The numbers of each head as a pandas DataFrame, by layer and head; measures have their names.

        Raises
        ------
        ProblemError
            If pandas is not installed.

        Examples
        --------
        >>> import attsvm.inspect, torch, transformers
        >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
        >>> batch = {"input_ids": torch.randint(64, (4, 16))}
        >>> found = attsvm.inspect.inspect(transformers.GPT2Model(config), batch, margins=False)
        >>> frame = found.to_frame()
        >>> frame.index.names, bool(frame.loc[1, 3].largest_probability == found.measure("largest_probability")[1, 3])
        (FrozenList(['layer', 'head']), True)
        """
        frame = super().to_frame().set_index(["layer", "head"])
        return frame.rename(columns=lambda name: name.removeprefix("numbers_"))

    def plot(self, measure: str | None = None, *, ax: Any = None) -> Any:
        """Draw one measure as a heat map, layers by heads.

        Parameters
        ----------
        measure : str, optional
            A key of ``numbers`` or of ``margins``; the first of the numbers by default.
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        Raises
        ------
        ProblemError
            If the measure is unknown, or there is no head.

        See Also
        --------
        measure : The same numbers as an array.
        """
        return self._drawn(measure, ax=ax)

    def sets(self, share: float = 0.5) -> dict[str, list[tuple[int, int]]]:
        """The heads that give at least a share of their attention to the tokens of a known pattern.

        Parameters
        ----------
        share : float
            Least mean attention to the tokens of the pattern, above 0 and at most 1. Each pattern has one of
            ``measures``, which says over which queries the mean is taken.

        Returns
        -------
        dict of str to list of (int, int)
            Layer and head by pattern: "previous token", "first token", "special tokens", "own place", "duplicate
            token", "induction", and "none of these". A head can be in several sets. Empty sets are left out.

        Raises
        ------
        ProblemError
            If ``share`` is not in its range.

        References
        ----------
        Olsson et al. (2022), *In-context Learning and Induction Heads*.
        """
        check_number("share", share, "a number above 0 and at most 1", lambda x: 0 < x <= 1)
        heads = self.heads
        found = {
            name: [(one.layer, one.head) for one in heads if (one.numbers.get(measure) or 0.0) >= share]
            for name, measure in HEAD_SETS.items()
        }
        named = {head for of_set in found.values() for head in of_set}
        found["none of these"] = [at for at in ((one.layer, one.head) for one in heads) if at not in named]
        return {name: of_set for name, of_set in found.items() if of_set}

    @overload
    def view(self, *, sequence: int = 0, tokens: Names | None = None) -> HeadGrid: ...

    @overload
    def view(self, layer: int, head: int) -> HeadView: ...

    def view(
        self, layer: int | None = None, head: int | None = None, *, sequence: int = 0, tokens: Names | None = None
    ) -> HeadGrid | HeadView:
        """All heads at a glance, or one in detail.

        Parameters
        ----------
        layer, head : int, optional
            The head in detail, counted from 0. By default a grid of all inspected heads.
        sequence : int
            The sequence of the grid, counted from 0. Layers that see fewer sequences show their last one.
        tokens : list of n lists of T str, optional
            Names of the tokens of every sequence, padding included, as those of ``tokenizer.convert_ids_to_tokens``.
            Layers that see others have numbers. By default tokens are numbered from 0, and patches of a picture have
            their row and column if a change of the patch confirms them.

        Returns
        -------
        HeadGrid or HeadView
            A grid is shown below the cell of a notebook: a small pattern of each head, with a row for each query and a
            column for each token, in a grid for each kind of layers. A click on a pattern opens the head: point at a
            token to see where it attends. Patches are drawn on the picture as the model gets it. The HTML loads nothing
            else. Its probabilities are rounded, by at most 0.004, and by at most 0.033 in grids of more than 2^22 pairs
            of a query and a token.

        Raises
        ------
        ProblemError
            If the inspection was loaded from a file, there is no such head or sequence, ``tokens`` fit no layer, or the
            grid has more than 2^25 pairs.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
        >>> found = attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False)
        >>> found.view(sequence=2)
        HeadGrid(2 heads; sequence 2)
        >>> found.view(0, 1).probabilities.shape
        (3, 4, 4)
        """
        self._source("view")
        if layer is None and head is None:
            most = max(group.num_sequences for group in self.groups)
            return HeadGrid.of(self, check_integer("sequence", sequence, 0, most - 1), tokens)
        if layer is None or head is None:
            raise ProblemError("view: expected both a layer and a head, or neither")
        if self.detail is not None and (self.detail.layer, self.detail.head) == (layer, head):
            return self.detail
        solved = any(one.status != Status.FINISHED for one in self.heads)  # whether margins were requested
        return view_head(self, layer, head, SolveSettings(self.gap, default_workers()) if solved else None)

    def explain(
        self,
        layer: int,
        heads: Collection[int] | int,
        pattern: str | None = None,
        *,
        origins: Mapping[str, Any] | Features | None = None,
    ) -> Explanation:
        """Why attention heads of one layer attend where they do: their logits, split by origin in the residual stream.

        :ref:`Provisional <provisional>`: it may change in any minor version.

        Parameters
        ----------
        layer : int
            Counted from 0.
        heads : collection of int, or int
            Heads of this layer. Several heads that share their work are explained together.
        pattern : str, optional
            "previous token", "duplicate token" or "induction": only decisions for a token of this pattern count, and
            the runner-up is the largest logit outside of it. By default all decisions count.
        origins : dict of str to array of shape (d,) or (k, d), or Features, optional
            More origins by their vectors in the residual stream before the norm of the layer, such as probes or
            differences of class means. What every other origin adds along these vectors, by least squares on all of
            them, is taken out of it and belongs to them; the sum remains the same. With :class:`Features` of a sparse
            autoencoder, its features replace the origins of the model, and "error" is what they leave of the stream.

        Returns
        -------
        Explanation

        Raises
        ------
        ProblemError
            If the model does something else with its residual stream than adding to it, scaling it and taking norms,
            the W of its layers is not known, the vectors of ``origins`` do not fit or are linearly dependent, no query
            decides for a token of the pattern, or the model rounds the stream by more than 0.1 %, as with weights in
            bfloat16.

        Notes
        -----
        The model runs twice more on the batch. It needs memory for d numbers for each token and earlier head. The parts
        are computed in float64; their sum is as precise as the model computes.

        Examples
        --------
        >>> import torch, transformers
        >>> import attsvm.torch
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
        >>> model, tokens = transformers.GPT2Model(config), torch.randint(64, (4, 16))
        >>> inspection = attsvm.inspect.inspect(model, {"input_ids": tokens}, margins=False)
        >>> list(inspection.explain(1, [0, 2]).groups)
        ['constant', 'embedding', 'position', 'biases', 'head 0.0', 'head 0.1', 'head 0.2', 'head 0.3', 'MLP 0']
        """
        source, sets = self._source("explain"), self.sets()
        sets.pop("none of these", None)
        chosen = heads if isinstance(heads, Collection) else [heads]
        return explained(source, layer, chosen, pattern, sets, origins)

    def reading_directions(self, layer: int, head: int, count: int = 3, ends: int = 8) -> list[ReadingDirection]:
        """The directions that a head reads: singular directions of W, and the tokens at each end.

        Parameters
        ----------
        layer, head : int
            Counted from 0.
        count : int
            Number of directions, those with the largest singular values.
        ends : int
            Number of tokens at each end.

        Returns
        -------
        list of ReadingDirection

        Raises
        ------
        ProblemError
            If W is not known.

        Examples
        --------
        >>> import torch, transformers
        >>> import attsvm.torch
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
        >>> batch = {"input_ids": torch.randint(64, (4, 16))}
        >>> inspection = attsvm.inspect.inspect(transformers.GPT2Model(config), batch, margins=False)
        >>> direction = inspection.reading_directions(0, 1, ends=5)[0]
        >>> direction.key_ends[0].shape, direction.vocabulary_ends[0].shape
        ((5, 2), (5,))
        """
        check_integer("count", count, 1)
        check_integer("ends", ends, 1)
        return reading_directions(self._source("reading_directions"), layer, head, count, ends)

    def available(self, layer: int = 0) -> Available:
        """What is known about a layer, counted from 0, besides selections, concentration and margins.

        Parameters
        ----------
        layer : int
            Counted from 0.

        Returns
        -------
        Available

        Raises
        ------
        ProblemError
            If the inspection was loaded from a file, or there is no such layer.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
        >>> attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False).available()
        Available(weights='acts on tokens', factors=True, keys=True, reasons=True)
        """
        source = self._source("available")
        captured, recipe = source.captured(layer), source.layers[layer].recipe
        if recipe is None:
            return Available("not known", factors=False, keys=False, reasons=False)
        try:
            check_explainable(source, layer, captured)
            reasons = True
        except ProblemError:
            reasons = False
        keys = captured.given is None and not captured.bias_of_tokens
        return Available(recipe.acts_on, captured.shares_tokens, keys, reasons)

    def robustness(self, layer: int, head: int) -> Robustness:
        """The smallest change of each query of a head, and of the input of a key, that alters its selection.

        The measures ``query_robustness`` and ``key_robustness`` are means over the queries.

        Parameters
        ----------
        layer, head : int
            Counted from 0.

        Returns
        -------
        Robustness

        Raises
        ------
        ProblemError
            If the inspection was loaded from a file, there is no such head, or its logits have biases that depend on
            the tokens.

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> _ = torch.manual_seed(0)
        >>> attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
        >>> found = attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False)
        >>> found.robustness(0, 1).query.shape
        (3, 4)
        """
        captured = self._source("robustness").captured(layer, head)
        return robustness(captured, head, captured.probabilities(head).argmax(axis=-1))

    def rotary_margin(self, layer: int, head: int) -> RotaryMargin:
        """The margin of a head with rotary positions, in the norm of its key and query weights.

        :ref:`Provisional <provisional>`: it may change in any minor version.

        The margin ratio of an inspection compares with W = I/√d_h on the keys and queries of the head. Here the
        weights that make keys and queries count: with one pair of columns for each frequency, half the sum of their
        squares is at least the sum of the complex nuclear norms of their products, :class:`attsvm.norms.Rotary`. The
        sink of a head is one more token, of logit 0.

        Parameters
        ----------
        layer, head : int
            Counted from 0.

        Returns
        -------
        RotaryMargin
            With the fields ``norm``, ``margin``, and ``least_ratio``: a bound on the margin ratio from one side, that
            of feasible multipliers of the Att-SVM in this norm. The ratio is between ``least_ratio`` and 1.

        Raises
        ------
        ProblemError
            If the inspection was loaded from a file, there is no such head, or its keys and queries are not linear in
            the tokens up to rotations.

        See Also
        --------
        attsvm.norms.Rotary

        Examples
        --------
        >>> import torch
        >>> import attsvm.torch
        >>> attention, tokens = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 4, 8)
        >>> found = attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False)
        >>> found.rotary_margin(0, 1)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        attsvm.errors.ProblemError: rotary_margin: expected a layer with rotary positions whose keys and queries are ...
        """
        captured = self._source("rotary_margin").captured(layer, head)
        probabilities = captured.probabilities(head)
        return rotary_margin(captured, head, selected_tokens(probabilities, captured.allowed))

    def effects(
        self,
        heads: Collection[tuple[int, int]] | None = None,
        *,
        targets: Any = None,
        draws: int = DRAWS,
        seed: int = 0,
        progress: bool = False,
        callback: Callable[[Progress], object] | None = None,
    ) -> Effects:
        """What attention heads write to the residual stream and the logits, and what removing them costs.

        :ref:`Provisional <provisional>`: it may change in any minor version.

        Parameters
        ----------
        heads : collection of (layer, head), optional
            Heads of the inspection; by default all.
        targets : int array of shape (n, T), optional
            The token that the logits at each place are compared with; −100 where none is. By default the next token of
            the text for a model in which no query attends to later tokens, and else the token itself.
        draws : int
            Number of ablations of each head by outputs of random places, at least 2.
        seed : int
            Of these places.
        progress : bool
            Show the progress, as :func:`attsvm.train` does.
        callback : callable, optional
            Called with a :class:`attsvm.Progress` after each head.

        Returns
        -------
        Effects

        Raises
        ------
        ProblemError
            If there is no such head, or no linear layer reads the outputs of the heads of a layer side by side, as in
            ``nn.MultiheadAttention`` and with gated outputs.

        Notes
        -----
        The model runs ``draws + 1`` times for each head, and memory holds what the layers of these heads make on all
        sequences.
        """
        check_integer("draws", draws, 2)
        check_seed(seed)
        check_flag("progress", progress)
        source = self._source("effects")
        with shown(progress, "effects", callback) as report:
            return head_effects(source, self.heads, heads, targets, draws, seed, report)

    def _source(self, method: str) -> ModelAndBatch:
        if self.source is None:
            raise ProblemError(
                f"{method}: expected an inspection made in this session, because a loaded one has no model and batch"
            )
        return self.source

    def edit(
        self,
        layer: int,
        head: int,
        targets: Targets | None = None,
        *,
        forget: Forgotten | None = None,
        change: str = "keys",
        keep: Any = None,
        preserve: float | None = None,
        ridge: float = 1.0,
        probability: float | None = None,
        along: Mapping[str, Any] | Features | None = None,
    ) -> Edit:
        """The smallest change of a head's weights after which chosen queries attend to chosen tokens.

        :ref:`Provisional <provisional>`: it may change in any minor version.

        Parameters
        ----------
        layer, head : int
            Counted from 0.
        targets : iterable of (sequence, query, token), or callable
            Positions in the padded batch of the inspection. A function is called with the token numbers, shape (T,), of
            each sequence and returns pairs (query, token); it can also be used on held-out text.
        forget : collection of int, or callable
            In place of ``targets``: tokens of the vocabulary to which no query of the batch should attend. A function
            is called with the token numbers of each sequence and returns positions. The token that replaces them is
            found by iteration for each query, and the change is the smallest for this choice.
        change : str
            "keys" changes W_K: of all keys, and of all heads that share them. "queries" changes W_Q and its bias.
        keep : mapping, tuple or Tensor, optional
            Arguments of the model, as for an inspection, for unrelated text, at least 30 sequences, on which the
            attention should change little: the norm of the change is then the mean change of logits that it would make
            there, with a ridge.
        preserve : float, optional
            The selections of all queries of ``keep``, and of the queries of the batch without a target, have to remain,
            with at least this part, from 0 to 1, of their lead over every other token, and a lead of 0.001.
        ridge : float
            Added to the second moments of ``keep``, relative to their mean diagonal. An edit with a smaller ridge does
            less damage to other text.
        probability : float, optional
            The least attention to a target, by default 0.9, or the largest to all forgotten tokens together, by default
            0.01. A query whose best token has the lead that this takes over each other one may have more, or less.
        along : dict of str to array of shape (d,) or (k, d), or Features, optional
            Directions of the residual stream, as ``origins`` of :meth:`explain`. The change reads nothing else of the
            tokens, or of the queries: it is the smallest one in their span, and leaves a bias as it is.

        Returns
        -------
        Edit
            Its ``status`` is ``infeasible`` if the targets contradict each other, and ``conflict`` names them.

        Raises
        ------
        ProblemError
            If a target is not in the batch, the weights of the head are not known, or its logits are not linear in
            them: norms of queries and keys, a soft cap, or a sink.

        Notes
        -----
        With a lead of log((T − 1) p/(1 − p)) over each of T − 1 others, a token has at least the probability p. Each
        lead is linear in the change D, so that the least ‖D‖_F is a quadratic program, whose multipliers prove it.
        With rotary positions a row of the keys is the difference of two products, x_α u_α' − x_t u_t', whose partners
        u_t = R_t'R_q q depend on the position of the token.
        """
        request = Request.checked(
            targets, forget, probability, change=change, preserve=preserve, ridge=ridge, along=along
        )
        if preserve is not None and keep is None:
            raise ProblemError("preserve: expected keep, the text whose selections are preserved")
        source, kept = self._text("edit", keep)
        captured = source.captured(layer, head)
        unrelated = None if kept is None else kept.captured(layer, head)
        return make_edit(source, captured, layer, head, request, kept, unrelated)

    def scan(
        self,
        targets: Targets | None = None,
        *,
        forget: Forgotten | None = None,
        heads: Collection[tuple[int, int]] | None = None,
        change: str = "keys",
        keep: Any = None,
        ridge: float = 1.0,
        probability: float | None = None,
        leave_one_out: bool = False,
    ) -> Scan:
        """The attention heads of the model, ordered by the norm of their smallest edit for given targets.

        :ref:`Provisional <provisional>`: it may change in any minor version.

        Parameters
        ----------
        targets, forget, change, keep, ridge, probability
            As in :meth:`edit`.
        heads : collection of (layer, head), optional
            By default all.
        leave_one_out : bool
            Whether to compute :meth:`Edit.leave_one_out` for each head, which takes several times longer.

        Returns
        -------
        Scan

        Raises
        ------
        ProblemError
            As :meth:`edit`.

        Examples
        --------
        >>> import attsvm.inspect, torch, transformers
        >>> _ = torch.manual_seed(0)
        >>> config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4)
        >>> model, batch = transformers.GPT2Model(config).eval(), {"input_ids": torch.randint(64, (4, 16))}
        >>> inspection = attsvm.inspect.inspect(model, batch, margins=False)
        >>> scan = inspection.scan(lambda tokens: [(9, 3), (12, 3)], heads=[(0, 0), (0, 1), (1, 0)])
        >>> bool((scan.value[1:] >= scan.value[:-1]).all()), set(scan.status.tolist())
        (True, {'optimal'})
        """
        request = Request.checked(targets, forget, probability, change=change, ridge=ridge)
        check_flag("leave_one_out", leave_one_out)
        source, kept = self._text("scan", keep)
        return scan_heads(source, request, kept, heads, leave_one_out)

    def _text(self, name: str, keep: Any) -> tuple[ModelAndBatch, ModelAndBatch | None]:
        """The whole batch of the inspection, and the text to keep."""
        source = self._source(name)
        own = ModelAndBatch.whole(source.model, source.batch, source.layers)
        return own, None if keep is None else ModelAndBatch.whole(source.model, keep, source.layers, "keep")

    def _rows(self) -> Iterator[tuple[str, str]]:
        """The summary in notebooks: what was inspected, the measures over the heads, and the named sets of heads."""
        some = "a sample of " * self.sampled
        yield "model", f"{self.model}, {len(self.layer_names)} layers"
        yield (
            "inspected",
            f"{self.num_sequences} sequences, {some}{self.num_queries:,} queries, {len(self.heads)} heads",
        )
        yield "status", self._counts()
        for measure in MEASURES:
            if measure.name in self.numbers:
                yield measure.title, _range(np.atleast_1d(self.numbers[measure.name]))
        for name, heads in self.sets().items():
            shown = ", ".join(f"{layer}.{head}" for layer, head in heads[:SHOWN])
            yield f"heads: {name}", shown if len(heads) <= SHOWN else f"{shown}, ... ({len(heads)} heads)"

    def _summary(self) -> str:
        return f"{self.model}: head {self.layer}.{self.head}, {self._batch_summary()}"

    def _batch_summary(self) -> str:
        return (
            f"{self.model}: {len(self.layer_names)} layers, {self.num_sequences} sequences, {self.num_queries} queries,"
            f" attention {_agreement(np.atleast_1d(self.rebuilt_error))}"
        )


def _group_of(row: Mapping[str, Any]) -> LayerGroup:
    return LayerGroup(**{**row, "positions": np.array(row["positions"], dtype=np.int64)})


def _agreement(errors: Float[np.ndarray, " heads"]) -> str:
    """How well the attention of heads is rebuilt, and of how many that is known."""
    known = errors[np.isfinite(errors)]
    if not len(known):
        return "not compared with the model's"
    some = "" if len(known) == len(errors) else f" in {len(known)} heads, the others not compared"
    return f"rebuilt to {known.max():.1e}{some}"


def _range(values: Float[np.ndarray, " heads"]) -> str:
    known = values[np.isfinite(values)]
    if len(known) < 2:
        return f"{known[0]:z.3g}" if len(known) else "not defined"
    return f"median {np.median(known):z.3g} ({known.min():z.3g} to {known.max():z.3g})"
