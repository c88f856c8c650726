"""Next words of a corpus: what attention that was trained on a last word selects, and what its graph predicts."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import softmax

from attsvm._fit.texts.corpus import Corpus, frequent_words, numbered, texts_hash
from attsvm._utils.checks import check_integer, check_number, check_seed
from attsvm._utils.progress import Callback, Progress
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.next_token import FiniteMinimiser, TokenGraph, token_graph
from attsvm.svm import Solution, solve_svm
from attsvm.texts import find_tokenizer, neighbour_vectors, split_words, warn_of_unspaced

MOMENTUM = 0.9

Contexts = list[Int[np.ndarray, " t"]]


@dataclass(frozen=True)
class NextWordOptions:
    """How a corpus is read and attention is trained on it.

    Raises ProblemError if one of them is out of range.
    """

    vocabulary: int = 200  # number of words; all others become one symbol
    length: int = 32  # number of words in the longest context
    words: int = 8  # number of last words, the most frequent ones
    contexts: int = 4000  # largest number of training contexts of a last word, drawn at random
    dim: int | None = None  # length of the word vectors that are learnt from the corpus; None for orthonormal ones
    steps: int = 2000  # steps of gradient descent with momentum
    learning_rate: float = 0.5
    test_fraction: float = 0.25  # share of the texts that is set apart
    seed: int = 0
    tokenizer: Any = None  # what splits texts into words, as for ``find_tokenizer``; then its result

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokenizer", find_tokenizer(self.tokenizer))
        check_seed(self.seed)
        for name, least in (("vocabulary", 2), ("length", 2), ("words", 1), ("contexts", 1), ("steps", 1)):
            check_integer(name, getattr(self, name), least)
        if self.dim is not None:
            check_integer("dim", self.dim, 1)
        check_number("learning_rate", self.learning_rate, "a number > 0", lambda x: x > 0)
        check_number("test_fraction", self.test_fraction, "a number in (0, 1)", lambda x: 0 < x < 1)


class Selected(NamedTuple):
    """The selections of the held-out contexts of a last word, as word numbers; −1 where there is no answer."""

    next_word: Int[np.ndarray, " n"]  # the word that follows
    contains: Bool[np.ndarray, " n"]  # whether the context contains it
    ordered: Bool[np.ndarray, " n"]  # whether the graph orders the words of the context
    # by ``attention``, ``prediction``, ``recent``, ``frequent`` and ``bigram``
    chosen: dict[str, Int[np.ndarray, " n"]]


@dataclass(frozen=True)
class LastWord:
    """One last word: its graph, the limit that theory predicts, and the attention that was trained."""

    number: int  # the number of the word
    graph: TokenGraph  # of the training contexts
    followed: Int[np.ndarray, " K"]  # how often each word was the next one in the contexts of the graph
    solution: Solution  # the graph-SVM
    finite: FiniteMinimiser
    scores: Float[np.ndarray, " K"]  # the logits of the trained attention
    loss: float  # of the trained attention, over the contexts of the graph
    held_out: Contexts
    # attention, predicted: the shares of each word of each held-out context. ``predicted`` is empty if the graph-SVM
    # has no solution.
    attention: list[np.ndarray]
    predicted: list[np.ndarray]
    selected: Selected


@dataclass(frozen=True)
class NextWords:
    """The result of :func:`fit_next_words`."""

    train: Corpus
    test: Corpus
    options: NextWordOptions
    last_words: list[LastWord]
    sha256: str  # hash of all texts
    seconds: dict[str, float] = field(default_factory=dict)


def fit_next_words(
    texts: list[str], options: NextWordOptions | None = None, *, callback: Callback | None = None
) -> NextWords:
    """Build the graphs of the most frequent last words, train attention on each, and compare both on other texts.

    Attention on a last word k depends on W only through W x_k, so each last word trains a vector of its own.

    ``callback``: called after each last word.

    Raises ProblemError if there are fewer than two texts, no last word has contexts that contain their next word and
    another one, or the learning rate is so large that the loss is not finite.

    References: Li, Huang, Ildiz, Rawat and Oymak (2024), *Mechanics of Next Token Prediction with Self-Attention*,
    AISTATS.
    """
    options = options or NextWordOptions()
    begin = time.perf_counter()
    generator = np.random.default_rng(options.seed)
    train, test = _parts(texts, options, generator)
    K = len(train.names)
    flat, document = train.positions
    if options.dim is None:
        vectors = np.eye(K)
    else:
        vectors = neighbour_vectors(flat, document, K, dim=options.dim, seed=options.seed).astype(np.float64)
    read = time.perf_counter()

    counts = np.bincount(flat[:-1][document[1:] == document[:-1]], minlength=K)[: K - 1]
    candidates = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k]]
    graphs: dict[int, tuple[TokenGraph, np.ndarray]] = {}
    for last in candidates:
        if len(graphs) == options.words:
            break
        contexts, labels = _contexts(train, last, options, generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the page counts contexts without their next word
            graph = token_graph(contexts, labels, num_tokens=K)
        if len(graph.edges):
            graphs[last] = graph, np.bincount(labels, minlength=K)
    if not graphs:
        raise ProblemError("texts: expected contexts that contain their next word and another one, got none")
    held_out = _held_out(test, list(graphs), options, generator)

    found = []
    # one shape for all last words, so that the training is compiled once
    kept = [graph.contexts for graph, _ in graphs.values() if graph.contexts is not None]
    shape = max(graph.num_contexts for graph, _ in graphs.values()), max(int(np.diff(x.offsets).max()) for x in kept)
    trainer = partial(_trained, vectors=vectors, shape=shape, options=options)
    for index, (last, (graph, followed)) in enumerate(graphs.items()):
        found.append(_last_word(last, graph, followed, vectors, trainer, *held_out[last]))
        if callback is not None:
            callback(Progress(index + 1, len(graphs), time.perf_counter() - begin, loss=found[-1].loss))
    seconds = {"reading": read - begin, "everything": time.perf_counter() - begin}
    return NextWords(train, test, options, found, texts_hash(texts), seconds)


def _parts(texts: list[str], options: NextWordOptions, generator: np.random.Generator) -> tuple[Corpus, Corpus]:
    """Training and held-out texts, with the vocabulary of the former."""
    if len(texts) < 2:
        raise ProblemError(f"texts: expected at least two, so that some can be set apart, got {len(texts)}")
    split = split_words(texts, options.tokenizer)
    warn_of_unspaced(split, options.tokenizer)
    order = generator.permutation(len(split))
    count = min(max(round(options.test_fraction * len(split)), 1), len(split) - 1)
    held_out, training = ([split[i] for i in sorted(part)] for part in (order[:count], order[count:]))
    vocabulary = frequent_words(training, options.vocabulary)
    return numbered(training, vocabulary), numbered(held_out, vocabulary)


def _contexts(
    corpus: Corpus, last: int, options: NextWordOptions, generator: np.random.Generator
) -> tuple[Contexts, Int[np.ndarray, " n"]]:
    """Contexts that end with a word, and the words that follow them."""
    places = [
        (number, place)
        for number, ids in enumerate(corpus.documents)
        for place in np.flatnonzero(ids[:-1] == last).tolist()
    ]
    if len(places) > options.contexts:
        places = [places[i] for i in sorted(generator.permutation(len(places))[: options.contexts])]
    contexts = [_context(corpus, number, place, options.length) for number, place in places]
    return contexts, np.array([corpus.documents[number][place + 1] for number, place in places])


def _context(corpus: Corpus, document: int, place: int, length: int) -> Int[np.ndarray, " t"]:
    return corpus.documents[document][max(place - length + 1, 0) : place + 1]


def _held_out(
    corpus: Corpus, last_words: list[int], options: NextWordOptions, generator: np.random.Generator
) -> dict[int, tuple[Contexts, Int[np.ndarray, " n"]]]:
    """One context of each held-out text, so that they are independent, by its last word."""
    found: dict[int, list[tuple[np.ndarray, int]]] = {last: [] for last in last_words}
    for number, ids in enumerate(corpus.documents):
        places = np.flatnonzero(np.isin(ids[:-1], last_words))
        if len(places):
            place = int(generator.choice(places))
            found[int(ids[place])].append((_context(corpus, number, place, options.length), int(ids[place + 1])))
    return {
        last: ([context for context, _ in rows], np.array([label for _, label in rows], np.int64))
        for last, rows in found.items()
    }


def _last_word(
    last: int,
    graph: TokenGraph,
    followed: Int[np.ndarray, " K"],
    vectors: Float[np.ndarray, "K d"],
    trainer: Callable[[TokenGraph], tuple[np.ndarray, float]],
    contexts: Contexts,
    labels: Int[np.ndarray, " n"],
) -> LastWord:
    solution = solve_svm(graph.problem(vectors), graph.selected)
    finite = graph.finite_minimiser(vectors)
    scores, loss = trainer(graph)
    attention = [softmax(scores[context]) for context in contexts]
    predicted: list[np.ndarray] = []
    ordered = np.zeros(len(contexts), bool)
    if contexts and np.isfinite(solution.direction).all():
        kept = graph.predict(contexts, vectors, solution=solution, finite=finite)
        predicted = [row[: len(context)] for row, context in zip(kept.probabilities, contexts, strict=True)]
        ordered = kept.ordered
    nothing = np.full(len(contexts), -1)
    chosen = {
        "attention": _each(_largest, contexts, attention),
        "prediction": _each(_largest, contexts, predicted) if predicted else nothing,
        "recent": _each(_recent, contexts),
        "frequent": _each(_largest, contexts, [np.ones(len(context)) for context in contexts]),
        "bigram": _each(lambda context: int(context[np.argmax(followed[context])]), contexts),
    }
    contains = np.array([label in context for context, label in zip(contexts, labels, strict=True)], bool)
    selected = Selected(labels, contains, ordered, chosen)
    return LastWord(last, graph, followed, solution, finite, scores, loss, contexts, attention, predicted, selected)


def _trained(
    graph: TokenGraph, *, vectors: Float[np.ndarray, "K d"], shape: tuple[int, int], options: NextWordOptions
) -> tuple[Float[np.ndarray, " K"], float]:
    """Logits of all words and the loss, after gradient descent with momentum on −log of the attention on the label.

    Raises ProblemError if the steps are so long that the loss is not finite.
    """
    contexts = graph.contexts
    assert contexts is not None
    ids, right, inside = np.zeros(shape, np.int32), np.zeros(shape, bool), np.zeros(shape, bool)
    for row, (start, end) in enumerate(zip(contexts.offsets[:-1], contexts.offsets[1:], strict=True)):
        ids[row, : end - start] = contexts.ids[start:end]
        inside[row, : end - start] = True
        right[row, : end - start] = contexts.ids[start:end] == contexts.labels[row]
    prompt, loss = _descend(
        *(jnp.asarray(x) for x in (vectors.astype(np.float32), ids, inside, right)),
        options.steps,
        options.learning_rate,
    )
    if not np.isfinite(loss):
        raise ProblemError(
            f"learning_rate: expected a smaller one, with which the loss stays finite, got {options.learning_rate:g}"
        )
    return vectors @ np.asarray(prompt, np.float64), float(loss)


@partial(jax.jit, static_argnums=(4,))
def _descend(
    vectors: jax.Array, ids: jax.Array, inside: jax.Array, right: jax.Array, steps: int, learning_rate: float
) -> tuple[jax.Array, jax.Array]:
    used = right.any(axis=1)

    def loss(prompt: jax.Array) -> jax.Array:
        logits = (vectors @ prompt)[ids]
        everything = jax.nn.logsumexp(jnp.where(inside | ~used[:, None], logits, -jnp.inf), axis=1)
        own = jax.nn.logsumexp(jnp.where(right | ~used[:, None], logits, -jnp.inf), axis=1)
        return jnp.sum(jnp.where(used, everything - own, 0.0)) / jnp.sum(used)

    optimizer = optax.sgd(learning_rate, momentum=MOMENTUM, nesterov=True)

    def step(_: int, state: tuple[jax.Array, optax.OptState]) -> tuple[jax.Array, optax.OptState]:
        prompt, memory = state
        change, memory = optimizer.update(jax.grad(loss)(prompt), memory)
        return prompt + change, memory

    start = jnp.zeros(vectors.shape[1], vectors.dtype)
    prompt, _ = jax.lax.fori_loop(0, steps, step, (start, optimizer.init(start)))
    return prompt, loss(prompt)


def _each(choose: Callable[..., int], *rows: list[np.ndarray]) -> Int[np.ndarray, " n"]:
    return np.array([choose(*row) for row in zip(*rows, strict=True)], np.int64)


def _largest(context: Int[np.ndarray, " t"], shares: Float[np.ndarray, " t"]) -> int:
    """The word whose copies get the largest share together; the most recent of equal ones."""
    total = np.bincount(context, shares)
    best = np.flatnonzero(total[context] >= total.max() * (1 - 1e-9))
    return int(context[best[-1]])


def _recent(context: Int[np.ndarray, " t"]) -> int:
    """The word after the latest earlier occurrence of the last word; without one, the word before the last one."""
    earlier = np.flatnonzero(context[:-1] == context[-1])
    return int(context[earlier[-1] + 1]) if len(earlier) else int(context[-2:][0])
