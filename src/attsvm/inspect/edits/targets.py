"""What an edit asks for: tokens that queries should attend to, or tokens that no query should attend to."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from attsvm._utils.checks import check_integer, check_number
from attsvm._utils.shapes import Bool, Int
from attsvm.errors import ProblemError
from attsvm.inspect.features import Features
from attsvm.inspect.weights import Layer

Targets = Callable[[np.ndarray], Iterable[tuple[int, int]]] | Iterable[tuple[int, int, int]]
"""Sequence, query and token of each target; or what finds query and token in the tokens of one sequence."""

Forgotten = Callable[[np.ndarray], Iterable[int]] | Collection[int]
"""Tokens of the vocabulary; or what finds their positions in the tokens of one sequence."""

Ids = Int[np.ndarray, "n T"] | None

ROUNDING = 1e-4
"""Relative error of a probability that the weights of the model, in float32, may cause."""


class Request(NamedTuple):
    """What is asked of a head, whichever it is; see :meth:`attsvm.inspect.Inspection.edit`."""

    targets: Targets | None
    forget: Forgotten | None
    change: str = "keys"
    preserve: float | None = None
    ridge: float = 1.0
    probability: float = 0.9
    along: "Mapping[str, Any] | Features | None" = None

    @classmethod
    def checked(
        cls, targets: Targets | None, forget: Forgotten | None, probability: float | None, **other: Any
    ) -> Self:
        """Check the arguments that do not depend on the head."""
        if (targets is None) == (forget is None):
            got = "neither" if targets is None else "both"
            raise ProblemError(f"targets: expected either targets or forget, got {got}")
        if probability is None:
            probability = 0.9 if forget is None else 0.01
        check_number("probability", probability, "a number between 0 and 1", lambda x: 0 < x < 1)
        request = cls(kept_targets(targets), forget, probability=probability, **other)
        if request.change not in ("keys", "queries"):
            raise ProblemError(f"change: expected 'keys' or 'queries', got {request.change!r}")
        check_number("ridge", request.ridge, "a number > 0", lambda x: x > 0)
        if request.preserve is not None:
            check_number("preserve", request.preserve, "a number from 0 to 1", lambda x: 0 <= x <= 1)
        return request

    def measure(self, ids: Ids, layer: Layer, head: int) -> tuple[float, float]:
        """The share of queries that do what is asked, and their mean attention to the tokens."""
        attention = layer.probabilities(head)
        if self.forget is None:
            assert self.targets is not None
            targets = find_targets(self.targets, ids)
            rows = attention[targets[:, 0], find_columns(targets, layer)]
            done = rows.argmax(axis=-1) == targets[:, 2]
            return float(done.mean()), float(np.take_along_axis(rows, targets[:, 2:], axis=-1).mean())
        forgotten = find_forgotten(self.forget, ids, layer)[:, None]
        asked = (layer.allowed & forgotten).any(axis=-1) & (layer.allowed & ~forgotten).any(axis=-1)
        mass = (attention * forgotten).sum(axis=-1)[asked]
        # where a query may attend to one other token, the least change gives exactly this probability, but for rounding
        done = mass <= self.probability * (1 + ROUNDING)
        return float(done.mean()), float(mass.mean())


def kept_targets(targets: Targets | None) -> Targets | None:
    """Targets that can be read several times, as an iterator cannot."""
    if targets is None or callable(targets):
        return targets
    try:
        return [*targets]
    except TypeError:
        raise ProblemError(f"targets: expected a function, or triples, got {type(targets).__name__}") from None


def find_targets(targets: Targets, ids: Ids) -> Int[np.ndarray, "m 3"]:
    """Sequence, position of the query and position of the token of every target."""
    found: Any = targets
    if callable(targets):
        found = [(i, *pair) for i, row in enumerate(_known("targets", ids)) for pair in targets(row)]
    try:
        array = np.array([tuple(one) for one in found])
    except (TypeError, ValueError):  # not all are triples
        array = np.array(())
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        got = "none" if len(found) == 0 else ", ".join(map(str, found[:3]))
        raise ProblemError(f"targets: expected at least one (sequence, query, token) of integers, got {got}")
    return array.astype(np.intp)


def find_columns(targets: Int[np.ndarray, "m 3"], layer: Layer) -> Int[np.ndarray, " m"]:
    """The column of each target's query in a layer.

    Raises ProblemError if there is no such query, or it may not attend to the token.
    """
    n, _, T = layer.allowed.shape
    columns = []
    for sequence, query, token in targets.tolist():
        if not (0 <= sequence < n and 0 <= token < T):
            raise ProblemError(f"targets: ({sequence}, {query}, {token}) is outside of {n} sequences of {T} tokens")
        places = layer.positions[sequence].tolist()
        if query < 0 or query not in places:
            raise ProblemError(f"targets: sequence {sequence} has no query at position {query}")
        columns.append(places.index(query))
        if not layer.allowed[sequence, columns[-1], token]:
            raise ProblemError(f"targets: query {query} of sequence {sequence} may not attend to token {token}")
    return np.array(columns)


def find_forgotten(forget: Forgotten, ids: Ids, layer: Layer) -> Bool[np.ndarray, "n T"]:
    """Which tokens are to be forgotten.

    Raises ProblemError if there are none, or these are all.
    """
    known = _known("forget", ids)
    if callable(forget):
        found = np.zeros(known.shape, bool)
        for row, tokens in zip(found, known, strict=True):
            for at in forget(tokens):
                row[check_integer("forget: position", at, 0, len(row) - 1)] = True
    elif isinstance(forget, Collection):
        found = np.isin(known, list(forget))
    else:
        raise ProblemError(f"forget: expected a function, or a collection of tokens, got {type(forget).__name__}")
    found &= layer.allowed.any(axis=1)
    if not found.any() or not (layer.allowed & ~found[:, None]).any():
        raise ProblemError("forget: expected some of the tokens of the batch, but not all of them")
    return found


def _known(name: str, ids: Ids) -> Int[np.ndarray, "n T"]:
    if ids is None:
        raise ProblemError(f"{name}: expected (sequence, query, token) of each, because the batch has no input_ids")
    return ids
