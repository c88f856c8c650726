"""The arrays of a problem: tokens, queries, labels, head, keys and masks."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.archives import read_arrays, write_npz
from attsvm._utils.checks import check_integer, check_kind
from attsvm._utils.displays import Displayed
from attsvm._utils.keywords import suggests
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.problem.checks import (
    Core,
    boolean,
    check_finite,
    check_key_groups,
    check_labels,
    check_lengths,
    fit,
    fit_head,
    of_one_head,
    over_heads,
    pad,
    rank_of_first,
    real,
    takes_last,
    tokens_in_use,
    without_padding,
)
from attsvm.problem.copies import Copies
from attsvm.problem.new_head import with_head
from attsvm.problem.other_terms import blocks, check_blocks, with_position_bias, with_sink
from attsvm.problem.rotations import with_rotations
from attsvm.problem.terms import Canonical, LogitTerms, MasksOnly, check_bias_index
from attsvm.results import check_index

ARRAY_NAMES = ("tokens", "labels", "queries", "head", "keys", "mask", "query_mask", "bias_index", "offsets")
FILE_NAMES = (*ARRAY_NAMES, "num_heads", "key_groups")


def check_is_problem(problem: Any, name: str = "problem") -> None:
    """Raise ProblemError unless it is a problem."""
    check_kind(name, problem, Problem, "attsvm.Problem(X, labels=...)")


def check_labelled(problem: "Problem", name: str = "problem") -> None:
    """Check that a binary classifier can be trained on a problem.

    ``name``: what error messages call it.

    Raises ProblemError if the problem has no labels, has several attention heads or batch axes, or more than two
    classes.
    """
    if problem.labels is None:
        raise ProblemError(f"{name}: expected labels to train with; `attsvm solve` needs none")
    problem.check_one_head()
    if problem.batch_shape:
        raise ProblemError(
            f"{name}: expected one problem, with tokens of shape (n, T, d), got batch axes {problem.batch_shape}"
        )
    if problem.num_classes is not None:
        raise ProblemError(f"{name}: expected labels ±1 and a head of shape (d,), got {problem.num_classes} classes")


@suggests
@dataclass(frozen=True, eq=False, repr=False, init=False)
class Problem(Displayed):
    """n sequences of T tokens, and the other arrays that attention over them needs.

    Arrays may be NumPy, JAX or torch (CPU) arrays or nested lists; they are copied to float64. The first ``tokens.ndim
    - 3`` axes are batch axes. Every other array has exactly these axes, or none of them, and is then shared by all
    problems. If a shape allows both readings, the array is taken to have the batch axes.

    Parameters
    ----------
    tokens : array, shape (*batch, n, T, d)
        If lengths differ, pad the sequences and set ``mask``, or use :meth:`from_sequences`.
    labels : array, shape (*batch, n) or (*batch, n, Q), optional
        ±1, or 0 and 1, where 0 counts as -1; with a ``head`` of shape (C, d), class numbers 0..C-1.
    queries : array, shape (*batch, n, d_q) or (*batch, n, Q, d_q), optional
        One query per sequence, or Q queries that share its tokens. None means prompt attention.
    head : array, shape (*batch, d) or (*batch, C, d), optional
        The linear prediction head v. With ``num_heads``, one for each attention head: shape (*batch, H, d) or (*batch,
        H, C, d).
    keys : array, shape (*batch, n, T, d_k), optional
        Keys replace the tokens in the logits and constraints, but not in the pooled output and the scores.
    mask : bool array, shape (*batch, n, T) or (*batch, n, Q, T), optional
        True for tokens that may be attended to. All others are never selected, and have no constraint and no score.
    query_mask : bool array, shape (*batch, n, Q), optional
        False for padded queries, which have no constraint, loss, score or selection.
    num_heads : int, optional
        The number H of attention heads in a model f = Σ_h v_h' X' softmax(X W_h z), all with the same tokens. An axis
        of attention heads is added after the batch axes. A prediction ``head`` without this axis is refused, because
        attention heads with the same v would stay equal. None means a single attention head, without such an axis.
    key_groups : int, optional
        The number g of groups, a divisor of H. The H/g consecutive attention heads of a group share the keys K of W_h =
        K Q_h', as in grouped-query and, for g = 1, multi-query attention. Training then has parameters K (*batch, g,
        d_k, m) and Q (*batch, H, d_q, m). With None, as with g = H, each attention head has its own K.
    bias_index : int array, shape (*batch, n, T) or (*batch, n, Q, T), optional
        For logits k'Wz + b_j: the number j ≥ 0 of the trained bias of each token, or -1 for none. The weights are then
        block diagonal, of shape (d_k + m, d_q + 1), with W at the top left and b (m,) at the bottom of the last column,
        so that W and b have one norm. :meth:`with_position_bias` and :meth:`with_sink` make this array.
    offsets : array, shape (*batch, n, T) or (*batch, n, Q, T), optional
        Fixed numbers that are added to the logits, as in ALiBi. They do not change the direction, so constraints and
        margins ignore them.

    Raises
    ------
    ProblemError
        If shapes do not fit each other, an entry in use is not finite, a label has another value, a query in use may
        attend to no token, or ``key_groups`` does not divide ``num_heads`` or comes without queries.

    See Also
    --------
    attsvm.datasets.random_problem : A random one.
    attsvm.Problem.from_sequences : From sequences of different lengths.
    attsvm.solve_svm, attsvm.train

    Notes
    -----
    Stored arrays are read-only and have the batch axes; shared arrays are views without copies. Labels have the Q axis
    if the queries have. Entries that the masks exclude are stored as zero.

    Tokens of a query with equal keys have equal attention under all weights. m of them count as one token of their mean
    value, whose logit is larger by log m; the first one represents them in selections and results.

    With ``num_heads`` the axis of heads is the last of the batch axes, of all arrays (without copies) and of all
    results: ``batch_shape`` is (*batch, H). Functions of tokens and selections treat each head as a problem of its own,
    because the constraints and token scores of a head do not depend on the other heads. :func:`attsvm.train` adds up
    their outputs. Functions that need the loss of the model take one head.

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm
    >>> tokens = np.random.default_rng(0).standard_normal((6, 8, 10))
    >>> attsvm.Problem(tokens, labels=[1, -1, 1, -1, 1, -1], queries=tokens[:, 0], head=np.ones(10))
    Problem(6 sequences × 8 tokens, d = 10; one query per sequence, d_q = 10; labels ±1; head)
    """

    kind: ClassVar[str] = "problem"

    tokens: Float[np.ndarray, "*batch n T d"]
    labels: Float[np.ndarray, "*queries"] | None
    queries: Float[np.ndarray, "*queries d_q"] | None
    head: Float[np.ndarray, "*heads d"] | None
    keys: Float[np.ndarray, "*batch n T d_k"] | None
    mask: Bool[np.ndarray, "*queries T"] | None
    query_mask: Bool[np.ndarray, "*batch n Q"] | None
    bias_index: Int[np.ndarray, "*queries T"] | None
    offsets: Float[np.ndarray, "*queries T"] | None
    num_heads: int | None
    key_groups: int | None

    def __init__(
        self,
        tokens: Any,
        labels: Any = None,
        queries: Any = None,
        head: Any = None,
        keys: Any = None,
        mask: Any = None,
        query_mask: Any = None,
        num_heads: Any = None,
        key_groups: Any = None,
        bias_index: Any = None,
        offsets: Any = None,
    ) -> None:
        heads = () if num_heads is None else (check_integer("num_heads", num_heads, 1),)
        check_lengths(tokens)
        tokens = real("tokens", tokens)
        if tokens.ndim < 3 or 0 in tokens.shape:
            raise ProblemError(f"tokens: expected shape (*batch, n, T, d) without empty axes, got {tokens.shape}")
        batch, (n, T, d) = tokens.shape[:-3], tokens.shape[-3:]
        of_tokens = f"tokens of shape {tokens.shape}"

        Q: tuple[int, ...] = ()
        if queries is not None:
            queries = fit("queries", real("queries", queries), batch, [(n, None), (n, None, None)], of_tokens)
            Q = queries.shape[len(batch) + 1 : -1]
        if keys is not None:
            keys = fit("keys", real("keys", keys), batch, [(n, T, None)], of_tokens)
        if mask is not None:
            shapes: list[Core] = [(n, T), (n, *Q, T)] if Q else [(n, T)]
            mask = fit("mask", boolean("mask", mask), batch, shapes, of_tokens)
        if query_mask is not None:
            if not Q:
                raise ProblemError(
                    "query_mask: expected queries of shape (n, Q, d_q), got a problem without a query axis"
                )
            query_mask = fit("query_mask", boolean("query_mask", query_mask), batch, [(n, *Q)], f"Q = {Q[0]} queries")
        of_pairs: list[Core] = [(n, T), (n, *Q, T)] if Q else [(n, T)]
        if bias_index is not None:
            index = check_bias_index(bias_index, has_queries=queries is not None)
            bias_index = fit("bias_index", index, batch, of_pairs, of_tokens)
        if offsets is not None:
            offsets = fit("offsets", real("offsets", offsets), batch, of_pairs, of_tokens)
            check_finite("offsets", offsets)

        active = np.ones((*batch, n, *Q), dtype=bool) if query_mask is None else query_mask
        if mask is not None or query_mask is not None:
            in_use = tokens_in_use(mask, active, Q, T)
            tokens = without_padding(tokens, in_use)
            keys = None if keys is None else without_padding(keys, in_use)
            queries = None if queries is None else without_padding(queries, active)
        for name, array in (("tokens", tokens), ("keys", keys), ("queries", queries)):
            if array is not None:
                check_finite(name, array)

        if labels is not None:
            labels = real("labels", labels, "-1 or 1, or class numbers of a head (`attsvm fit` takes two words)")
            label_shapes: list[Core] = [(n,), (n, *Q)] if Q else [(n,)]
            labels = fit("labels", labels, batch, label_shapes, of_tokens)
            if labels.ndim < active.ndim:
                labels = labels[..., None]
            labels = np.where(active, np.broadcast_to(labels, active.shape), 0.0)
        if head is not None:
            head = fit_head(real("head", head), labels, active, batch, heads, d)
            check_finite("head", head)
        if labels is not None:
            has_classes = head is not None and head.ndim > len(batch + heads) + 1
            if not has_classes and np.isin(labels[active], (0, 1)).all():
                labels = np.where(active, 2 * labels - 1, 0.0)
            check_labels(labels[active], head.shape[-2] if has_classes else None)

        if key_groups is not None:
            groups = check_key_groups(key_groups, heads, has_queries=queries is not None)
            key_groups = None if heads == (groups,) else groups

        object.__setattr__(self, "num_heads", heads[0] if heads else None)
        object.__setattr__(self, "key_groups", key_groups)
        arrays = (tokens, labels, queries, head, keys, mask, query_mask, bias_index, offsets)
        for name, array in zip(ARRAY_NAMES, arrays, strict=True):
            if array is not None:
                array = array.view() if name == "head" else over_heads(array, batch, heads)
                array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes: one entry for each problem; with several attention heads, the last axis counts them."""
        return self.tokens.shape[:-3]

    @property
    def heads_shape(self) -> tuple[int, ...]:
        """(H,) with ``num_heads``, otherwise ()."""
        return () if self.num_heads is None else (self.num_heads,)

    @property
    def model_shape(self) -> tuple[int, ...]:
        """The batch axes without the axis of the attention heads: one entry for each model that is trained."""
        return self.batch_shape[: len(self.batch_shape) - len(self.heads_shape)]

    @property
    def num_sequences(self) -> int:
        """Number of sequences, n."""
        return int(self.tokens.shape[-3])

    @property
    def num_tokens(self) -> int:
        """Tokens per sequence including padding, T."""
        return int(self.tokens.shape[-2])

    @property
    def dim(self) -> int:
        """Dimension of a token, d."""
        return int(self.tokens.shape[-1])

    @property
    def key_dim(self) -> int:
        """Dimension of a key: d_k if there are keys, else d."""
        return self.dim if self.keys is None else self.keys.shape[-1]

    @property
    def query_dim(self) -> int:
        """Dimension of a query: d_q; 1 for a prompt."""
        return 1 if self.queries is None else self.queries.shape[-1]

    @cached_property
    def num_biases(self) -> int:
        """Number of trained biases, m; 0 without ``bias_index``."""
        return 0 if self.bias_index is None else int(self.bias_index.max()) + 1

    @property
    def other_terms(self) -> str:
        """The terms of the logits besides k'Wz, in words; empty if there are none."""
        found = {"biases": self.bias_index, "offsets": self.offsets}
        return " and ".join(name for name, array in found.items() if array is not None)

    @property
    def weights_shape(self) -> tuple[int, ...]:
        """Shape of the weights: (d_k, d_q), with biases (d_k + m, d_q + 1); (d_k,) for a prompt."""
        if not self.has_queries:
            return (self.key_dim,)
        return self.key_dim + self.num_biases, self.query_dim + (self.num_biases > 0)

    @property
    def has_queries(self) -> bool:
        """True if attention uses W, False for a prompt."""
        return self.queries is not None

    @property
    def has_query_axis(self) -> bool:
        """Whether several queries share each sequence."""
        return self.queries is not None and self.queries.ndim == self.tokens.ndim

    @property
    def query_shape(self) -> tuple[int, ...]:
        """Shape (*batch, n[, Q]), one entry for each query: the shape of a selection."""
        return self.tokens.shape[:-2] if self.queries is None else self.queries.shape[:-1]

    @property
    def num_classes(self) -> int | None:
        """C if the head has shape (C, d); None for labels ±1."""
        return None if self.head is None or self.head.ndim == self.tokens.ndim - 2 else self.head.shape[-2]

    @cached_property
    def binary(self) -> "Problem":
        """The problem with labels ±1: of two classes, with the head v_1 − v_0 and the label 1 for class 1.

        The cross-entropy of two classes is the logistic loss of this problem. Problems without classes are as they are.
        Raises ProblemError for another number of classes.
        """
        if self.num_classes is None:
            return self
        if self.num_classes != 2:
            raise ProblemError(
                f"problem: expected labels -1 and 1, or two classes, got {self.num_classes} classes, under which "
                "attention may keep several tokens; attsvm.predict_direction(problem, run) finds these tokens and "
                "their Att-SVM"
            )
        arrays = self.arrays()
        two = {"head": arrays["head"][..., 1, :] - arrays["head"][..., 0, :]}
        if "labels" in arrays:
            two["labels"] = 2 * arrays["labels"] - 1
        return Problem(**{**arrays, **two})

    def check_one_head(self) -> None:
        """Raise ProblemError if there are several attention heads, whose outputs are added up."""
        if self.num_heads is not None:
            raise ProblemError(
                "num_heads: expected None, because the loss is for the sum over all attention heads, got "
                f"{self.num_heads}; problem[{':, ' * len(self.model_shape)}h] is the problem of head h alone"
            )

    @cached_property
    def canonical(self) -> Canonical:
        """Keys, queries and masks with all axes, for solvers and training.

        Of a problem with biases or offsets it has the masks only: keys and queries alone do not make its logits, and
        reading them raises ProblemError. :attr:`terms` has all that makes them.
        """
        return MasksOnly(*self._canonical) if self.other_terms else self._canonical

    @cached_property
    def terms(self) -> LogitTerms:
        """What the logits are made of, with all axes."""

        def of_pairs(array: np.ndarray | None) -> np.ndarray | None:
            if array is None:
                return None
            with_queries = array if array.ndim == self.tokens.ndim else array[..., None, :]
            return np.broadcast_to(with_queries, self._canonical.allowed.shape)

        keys, queries, _, _ = self._canonical
        return LogitTerms(keys, queries, of_pairs(self.bias_index), of_pairs(self.offsets))

    @cached_property
    def _canonical(self) -> Canonical:
        lead = self.tokens.shape[:-2]
        if self.queries is None:
            queries = np.broadcast_to(1.0, (*lead, 1, 1))
        else:
            queries = self.queries if self.has_query_axis else self.queries[..., None, :]
        shape = (*queries.shape[:-1], self.num_tokens)
        active = np.ones(shape[:-1], dtype=bool) if self.query_mask is None else self.query_mask
        allowed = np.ones(shape, dtype=bool)
        if self.query_mask is not None:
            allowed &= active[..., None]
        if self.mask is not None:
            allowed = allowed & (self.mask if self.mask.ndim == len(shape) else self.mask[..., None, :])
        return Canonical(self.tokens if self.keys is None else self.keys, queries, allowed, active)

    @cached_property
    def copies(self) -> Copies:
        """The tokens of each query with equal keys, which have equal attention under all weights."""
        masked = self.mask is not None or self.query_mask is not None
        copies = Copies.of(self.terms.keys, self.canonical.allowed, masked=masked, biases=self.terms.bias_index)
        offsets = self.terms.offsets
        if offsets is not None and (np.where(self.canonical.allowed, copies.of_first(offsets) - offsets, 0.0)).any():
            raise ProblemError("offsets: expected equal ones for the tokens of a query with equal keys, got others")
        return copies

    @cached_property
    def data_hash(self) -> str:
        """SHA-256 of the names, shapes and contents of the arrays."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name}{array.shape}{array.dtype}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @classmethod
    def from_sequences(
        cls,
        tokens: Iterable[Any],
        labels: Any = None,
        queries: Any = None,
        head: Any = None,
        keys: Iterable[Any] | None = None,
        num_heads: int | None = None,
        key_groups: int | None = None,
    ) -> "Problem":
        """Pad sequences of different lengths into one problem.

        Parameters
        ----------
        tokens : iterable of n arrays, shapes (T_i, d)
        labels : array (n,), or list of n arrays (Q_i,), optional
        queries : array (n, d_q), or list of n arrays, each (d_q,) or (Q_i, d_q), optional
        head : array (d,) or (C, d), optional
            With ``num_heads``, shape (H, d) or (H, C, d).
        keys : iterable of n arrays, shapes (T_i, d_k), optional
        num_heads, key_groups : int, optional

        Returns
        -------
        Problem
            With a ``mask`` if the lengths differ, and a ``query_mask`` if the numbers of queries differ.

        Raises
        ------
        ProblemError
            If a sequence has no token, or the arrays do not fit each other.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> attsvm.Problem.from_sequences([np.ones((2, 3)), np.ones((4, 3))])
        Problem(2 sequences × 4 tokens, d = 3; prompt; 75% of the tokens allowed)
        """
        padded, mask = pad("tokens", tokens, 2)
        if keys is not None:
            keys, key_mask = pad("keys", keys, 2)
            if key_mask.shape != mask.shape or (key_mask != mask).any():
                raise ProblemError("keys: expected one key per token, got other lengths")
        query_mask = None
        if queries is not None and rank_of_first(queries) == 2:
            queries, query_mask = pad("queries", queries, 2)
            if labels is not None and rank_of_first(labels) == 1:
                labels, label_mask = pad("labels", labels, 1)
                if label_mask.shape != query_mask.shape or (label_mask != query_mask).any():
                    raise ProblemError("labels: expected one label per query, got other lengths")
            query_mask = None if query_mask.all() else query_mask
        return cls(padded, labels, queries, head, keys, None if mask.all() else mask, query_mask, num_heads, key_groups)

    @classmethod
    def from_attention(cls, q: Any, k: Any, mask: Any = None) -> "Problem":
        """The problem of an attention layer with logits k_it'q_i. The layer itself has W = I.

        Parameters
        ----------
        q : array, shape (*batch, n, d_h) or (*batch, n, Q, d_h)
            Projected queries.
        k : array, shape (*batch, n, T, d_h)
            Projected keys.
        mask : bool array, shape (*batch, n, T) or (*batch, n, Q, T), optional
            True for tokens that may be attended to.

        Returns
        -------
        Problem
            Without labels and head.

        Raises
        ------
        ProblemError
            If the shapes do not fit.

        See Also
        --------
        attsvm.inspect.inspect : For the heads of a trained transformer.

        Examples
        --------
        >>> import numpy as np
        >>> import attsvm
        >>> rng = np.random.default_rng(0)
        >>> attsvm.Problem.from_attention(rng.standard_normal((2, 3)), rng.standard_normal((2, 4, 3)))
        Problem(2 sequences × 4 tokens, d = 3; one query per sequence, d_q = 3)
        """
        k, q = real("k", k), real("q", q)
        if q.ndim and k.ndim and q.shape[-1] != k.shape[-1]:
            raise ProblemError(f"q: expected the same last axis as k of shape {k.shape}, got shape {q.shape}")
        return cls(k, queries=q, mask=mask)

    blocks = blocks
    check_blocks = check_blocks
    with_head = with_head
    with_position_bias = with_position_bias
    with_rotations = with_rotations
    with_sink = with_sink

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the tokens of the first six sequences, in the plane of their first two principal components if d > 2.

        Each sequence has its own colour. Circles surround the optimal tokens if the problem has labels ±1 and a head.
        For a batch, the first problem is drawn.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes

        Examples
        --------
        >>> import attsvm
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> problem.plot().get_xlabel()
        'first principal component'
        """
        return self._drawn(ax=ax)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the arrays to an ``.npz`` file whose names are the arguments of Problem.

        See Also
        --------
        attsvm.Problem.load

        Examples
        --------
        >>> import attsvm, tempfile
        >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     problem.save(f"{folder}/my_problem.npz")
        ...     attsvm.Problem.load(f"{folder}/my_problem.npz").data_hash == problem.data_hash
        True
        """
        write_npz(path, self.kind, self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Problem":
        """Read a problem file: an ``.npz`` archive or a JSON object whose names are arguments of Problem.

        Raises
        ------
        ProblemError
            If the file cannot be read, lacks tokens, holds other names, or its arrays do not make a problem.

        See Also
        --------
        attsvm.Problem.save
        attsvm.datasets.find_source : Other data sources.

        Examples
        --------
        >>> import attsvm, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     attsvm.datasets.random_problem(3, 4, 5).save(f"{folder}/my_problem.npz")
        ...     attsvm.Problem.load(f"{folder}/my_problem.npz").num_sequences
        3
        """
        return problem_of_file(path, read_arrays(path, cls.kind))

    def __getitem__(self, index: Any) -> "Problem":
        """The problem or problems at ``index`` of the batch axes.

        An index that ends with a number or an array for the axis of heads takes single heads. A slice of this axis
        that leaves out heads takes heads with a K for each.
        """
        check_index(index, self.batch_shape, self.kind)
        arrays = {name: array[index] for name, array in self._stored().items()}
        if self.num_heads is None or takes_last(index, len(self.batch_shape)):
            return Problem(**arrays)
        same = arrays["tokens"].shape[-4] == self.num_heads
        return Problem(**of_one_head(arrays, arrays["tokens"].ndim - 4), key_groups=self.key_groups if same else None)

    def _rows(self) -> Iterator[tuple[str, str]]:
        if self.model_shape:
            yield "batch", " × ".join(map(str, self.model_shape))
        yield "sequences × tokens × entries", f"{self.num_sequences} × {self.num_tokens} × {self.dim}"
        for name, array in self.arrays().items():
            yield name, f"{array.dtype} array of shape {array.shape}"

    def __repr__(self) -> str:
        batch = f"{' × '.join(map(str, self.model_shape))} problems of " if self.model_shape else ""
        parts = [f"{batch}{self.num_sequences} sequences × {self.num_tokens} tokens, d = {self.dim}"]
        if self.keys is not None:
            parts.append(f"keys of dimension {self.key_dim}")
        if self.has_queries:
            number = f"{self.query_shape[-1]} queries per sequence" if self.has_query_axis else "one query per sequence"
            parts.append(f"{number}, d_q = {self.query_dim}")
        else:
            parts.append("prompt")
        if self.labels is not None:
            parts.append("labels ±1" if self.num_classes is None else f"labels 0..{self.num_classes - 1}")
        if self.num_heads is not None:
            groups = "" if self.key_groups is None else f" in {self.key_groups} groups with shared keys"
            parts.append(f"{self.num_heads} attention heads{groups}")
        if self.head is not None:
            parts.append("head" if self.num_classes is None else f"head of {self.num_classes} classes")
        if self.num_biases:
            parts.append(f"{self.num_biases} trained biases")
        if self.offsets is not None:
            parts.append("fixed offsets")
        if self.mask is not None:
            parts.append(f"{self.canonical.allowed.mean():.0%} of the tokens allowed")
        if self.query_mask is not None:
            parts.append(f"{self.query_mask.mean():.0%} of the queries active")
        return f"Problem({'; '.join(parts)})"

    def _stored(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in ARRAY_NAMES if getattr(self, name) is not None}

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the constructor takes, by name; of several attention heads, what they share is there once."""
        if self.num_heads is None:
            return self._stored()
        shared = {} if self.key_groups is None else {"key_groups": np.array(self.key_groups)}
        return of_one_head(self._stored(), len(self.model_shape)) | shared


def of_rows(problem: Problem) -> Problem:
    """A problem whose tokens are the rows of inequalities: one that is equal to the selected token stays a row.

    Such rows, 0'w ≥ 1, have no solution.
    """
    problem.__dict__["copies"] = Copies(problem.canonical.allowed, None)
    return problem


def take_sequences(problem: Problem, rows: np.ndarray) -> Problem:
    """Return the problem that consists of the sequences ``rows``, in that order, with the same head."""
    arrays = {name: getattr(problem, name) for name in ARRAY_NAMES}
    chosen = {name: a if name == "head" or a is None else a[rows] for name, a in arrays.items()}
    return Problem(**chosen, num_heads=problem.num_heads, key_groups=problem.key_groups)


def stack_problems(problems: Iterable[Problem]) -> Problem:
    """Return problems of equal shapes as one, along a new first batch axis."""
    each = list(problems)
    given = [name for name in ARRAY_NAMES if getattr(each[0], name) is not None]
    arrays = {name: np.stack([getattr(problem, name) for problem in each]) for name in given}
    return Problem(**arrays, num_heads=each[0].num_heads, key_groups=each[0].key_groups)


def problem_of_file(path: str | os.PathLike[str], arrays: dict[str, np.ndarray]) -> Problem:
    """The problem of the arrays of a file. Errors begin with its path."""
    unknown = sorted(set(arrays) - set(FILE_NAMES))
    if unknown:
        raise ProblemError(f"{path}: expected arrays named {', '.join(FILE_NAMES)}, got {unknown[0]!r}")
    if "tokens" not in arrays:
        raise ProblemError(f"{path}: expected an array 'tokens', got none")
    try:
        return Problem(**arrays)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from None
