"""Contexts of any lengths with the tokens that follow them, from arrays or documents, and their distinct edges."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.checks import check_integer
from attsvm._utils.shapes import Bool, Int
from attsvm.errors import ProblemError

POSITIONS = 1_000_000
"""Positions of documents that are looked at together; they bound the memory."""

HASH_SEED = 0

DENSE = 2**29
"""The most possible edges that are marked in an array of booleans."""


class Contexts(NamedTuple):
    """n contexts: context i is ``ids[offsets[i]:offsets[i + 1]]``, and ``labels[i]`` follows it.

    ``last[i]`` is the number of its query, which is that of its last token.
    """

    ids: Int[np.ndarray, " N"]
    offsets: Int[np.ndarray, " n+1"]
    labels: Int[np.ndarray, " n"]
    last: Int[np.ndarray, " n"]

    @classmethod
    def of(
        cls, ids: Int[np.ndarray, " N"], offsets: Int[np.ndarray, " n+1"], labels: Int[np.ndarray, " n"]
    ) -> "Contexts":
        """Contexts whose last token attends."""
        return cls(ids, offsets, labels, ids[offsets[1:] - 1])

    @property
    def owner(self) -> Int[np.ndarray, " N"]:
        """The number of the context of each id."""
        return np.repeat(np.arange(len(self.labels)), np.diff(self.offsets))

    def has_label(self) -> Bool[np.ndarray, " n"]:
        """Which contexts contain their label."""
        found = np.zeros(len(self.labels), bool)
        owner = self.owner
        found[owner[self.ids == self.labels[owner]]] = True
        return found

    def keep(self, some: Bool[np.ndarray, " n"]) -> "Contexts":
        lengths = np.diff(self.offsets)
        return Contexts(self.ids[np.repeat(some, lengths)], ends(lengths[some]), self.labels[some], self.last[some])


def ends(lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n+1"]:
    """Offsets of sequences of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)])


def equal_rows(
    column: Int[np.ndarray, " N"], number: np.ndarray, starts: Int[np.ndarray, " n"], kind: Int[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " G"], Int[np.ndarray, " G"]]:
    """The first of each group of equal rows of a sparse matrix of counts, in ascending order, and the group's size.

    ``column``, ``number``: of each entry, sorted. ``starts``: the first entry of each row. ``kind``: an integer of each
    row, which is equal, too.
    """
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    # equal rows have equal sums of random numbers, and others do not
    keys = np.random.default_rng(HASH_SEED).integers(2**63, size=(int(column.max()) + 1, 2), dtype=np.uint64)
    sums = np.add.reduceat(number.astype(np.uint64)[:, None] * keys[column], starts, axis=0)
    rows = np.c_[sums, kind.astype(np.uint64)]
    _, first, counts = np.unique(rows, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


def padded(values: np.ndarray, offsets: Int[np.ndarray, " n+1"]) -> np.ndarray:
    """Values of sequences as rows of one array, with zeros behind them."""
    lengths = np.diff(offsets)
    result = np.zeros((len(lengths), int(lengths.max())), values.dtype)
    result[np.arange(result.shape[1]) < lengths[:, None]] = values
    return result


def parse_sequences(sequences: Any) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " n+1"]]:
    """Ids and offsets of an array of shape (n, T), or of a list of lists of token numbers.

    Raises ProblemError if there is no sequence, one is empty, or an entry is not a token number.
    """
    if isinstance(sequences, np.ndarray) and sequences.ndim == 2 and sequences.size:
        n, T = sequences.shape
        return _integers("sequences", sequences.reshape(-1)), np.arange(n + 1) * T
    rows = [_integers(f"sequences[{i}]", row) for i, row in enumerate(sequences)]
    if not rows:
        raise ProblemError("sequences: expected at least one sequence, got none")
    empty = next((i for i, row in enumerate(rows) if not len(row)), None)
    if empty is not None:
        raise ProblemError(f"sequences: expected at least one token in each, got none at index {empty}")
    return np.concatenate(rows), ends(np.array([len(row) for row in rows]))


def parse_contexts(sequences: Any, next_tokens: Any) -> Contexts:
    """Contexts from sequences and the token that follows each; by default those of every position of a sequence.

    Raises ProblemError if an argument is not what :func:`parse_sequences` expects, the numbers of both differ, or no
    sequence has two tokens while none are given.
    """
    ids, offsets = parse_sequences(sequences)
    if next_tokens is None:
        return _of_every_position(ids, offsets)
    labels = _integers("next_tokens", next_tokens)
    if len(labels) != len(offsets) - 1:
        raise ProblemError(f"next_tokens: expected {len(offsets) - 1}, one for each sequence, got {len(labels)}")
    return Contexts.of(ids, offsets, labels)


def of_documents(documents: Iterable[Any], length: int) -> Iterator[Contexts]:
    """The contexts of every position that has a next token, in parts of bounded size.

    ``documents``: each is read once. ``length``: the longest context; it ends at the position and stays inside the
    document.
    """
    check_integer("length", length, 1)
    most, waiting, size = max(1, POSITIONS // length), [], 0
    for place, document in enumerate(documents):
        ids = _integers(f"documents[{place}]", document)
        for start in range(0, max(len(ids) - 1, 0), most):  # the last position of a part has its next token
            waiting.append((ids[max(start - length + 1, 0) : start + most + 1], min(start, length - 1)))
            size += most if len(ids) > most else len(ids)
            if size >= most:
                yield _joined(waiting, length)
                waiting, size = [], 0
    if waiting:
        yield _joined(waiting, length)


class Edges:
    """The distinct edges of contexts, as numbers (last · K + label) · K + other."""

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens, self.seen, self.dropped = num_tokens, 0, 0
        self._marks = np.zeros(num_tokens**3, bool) if num_tokens**3 <= DENSE else None
        self._keys = np.zeros(0, np.int64)

    def add(self, contexts: Contexts) -> None:
        """Add those of contexts.

        Raises ProblemError if a token is not in the vocabulary.
        """
        K = self.num_tokens
        largest = max(contexts.ids.max(initial=0), contexts.labels.max(initial=0))
        if largest >= K:
            raise ProblemError(f"num_tokens: expected more than the largest token number, {largest}, got {K}")
        owner, has_label = contexts.owner, contexts.has_label()
        self.seen += len(has_label)
        self.dropped += int(np.count_nonzero(~has_label))
        edge = has_label[owner] & (contexts.ids != contexts.labels[owner])
        of = owner[edge]
        keys = (contexts.last[of] * K + contexts.labels[of]) * K + contexts.ids[edge]
        if self._marks is None:
            self._keys = np.union1d(self._keys, keys)
        else:
            self._marks[keys] = True

    def rows(self) -> Int[np.ndarray, "E 3"]:
        """Rows (last token, label, other), sorted."""
        keys = self._keys if self._marks is None else np.flatnonzero(self._marks)
        first, other = np.divmod(keys, self.num_tokens)
        last, label = np.divmod(first, self.num_tokens)
        return np.stack([last, label, other], axis=1)


def _of_every_position(ids: Int[np.ndarray, " N"], offsets: Int[np.ndarray, " n+1"]) -> Contexts:
    """The contexts of every position that has a next token in its sequence.

    Raises ProblemError if there is none.
    """
    if (np.diff(offsets) < 2).all():
        raise ProblemError("sequences: expected a sequence of at least two tokens without next_tokens, got none")
    documents = np.split(ids, offsets[1:-1])
    return _joined([(document, 0) for document in documents], int(np.diff(offsets).max()))


def _joined(parts: list[tuple[Int[np.ndarray, " k"], int]], length: int) -> Contexts:
    """The contexts of the positions of parts of documents, but the last of each and those before a number."""
    ids = np.concatenate([part for part, _ in parts])
    begins = ends(np.array([len(part) for part, _ in parts]))
    own_begin = np.repeat(begins[:-1], np.diff(begins))
    first = np.repeat([skipped for _, skipped in parts], np.diff(begins))
    at = np.arange(len(ids))
    at = at[(at - own_begin >= first) & (at < np.repeat(begins[1:], np.diff(begins)) - 1)]
    begin = np.maximum(at - length + 1, own_begin[at])
    offsets = ends(at - begin + 1)
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - begin, np.diff(offsets))
    return Contexts.of(ids[within], offsets, ids[at + 1])


def _integers(name: str, values: Any) -> Int[np.ndarray, " k"]:
    """Token numbers of one sequence.

    Raises ProblemError if they are not integers from 0, on one axis.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ProblemError(f"{name}: expected token numbers, got {values!r}") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ProblemError(f"{name}: expected integers on one axis, got {array.dtype} of shape {array.shape}")
    if array.size and array.min() < 0:
        raise ProblemError(f"{name}: expected token numbers >= 0, got {array.min()}")
    return array.astype(np.int64)
