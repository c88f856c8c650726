"""Which norm suits a data set: the Att-SVMs of several norms, compared on sequences that they were not solved for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attsvm._utils.checks import check_integer, check_seed
from attsvm._utils.extras import check_installed
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, parse_norm, read_norm, written_norm
from attsvm.optimizers import Optimizer
from attsvm.problem import Problem, check_is_problem
from attsvm.profiles.cross_validation import TOLERANCE, accuracies, right_queries
from attsvm.profiles.trained_by import MeasuredTraining, trained_by
from attsvm.results import Result, Status, per_trial, shared
from attsvm.selection import selection_sets
from attsvm.svm import solve_svm

FOR_MATRICES = ("frobenius", "nuclear", "spectral", "l1", "l1.5", "l3", "linf", "l2,1", "l2,1-columns", "gamma2")
FOR_PROMPTS = ("frobenius", "l1", "l1.5", "l3", "linf")
FOR_CLASSIFIERS = ("frobenius", "l1.5", "l3", "linf")

DEFAULT = Lp(2.0)
"""The norm of gradient descent on W and p, which is kept unless another one is better."""


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(Result):
    """How well the Att-SVMs of several norms select tokens in held-out sequences, and which norm to use.

    N norms, n sequences.

    Attributes
    ----------
    status : Status
        ``finished``.
    share : ndarray, shape (N,)
        Over the held-out sequences, the share of queries that give a right token their largest logit; without a
        selection, the share of sequences that are classified rightly.
    low, high : ndarray, shape (N,)
        Its interval of 95 %, from the spread over the sequences.
    gain, gain_error : ndarray, shape (N,)
        The share minus that of the Frobenius norm, and the standard error of this difference.
    right : ndarray, shape (N, n)
        The share in each sequence; NaN where all queries are padding.
    soft : bool ndarray, shape (n,)
        Sequences that were held out from sequences which have no Att-SVM. They count for every norm with the soft
        margin in the Frobenius norm.
    norms : tuple of str
        Their names; the Frobenius norm is the first.
    norm : Norm
        The norm with the largest share if its gain is more than one standard error, otherwise the Frobenius norm.
    verdict : str
        Its name.
    reason : str
        The answer in a sentence.
    has_queries : bool
        Whether the problem has queries, so that W or K and Q are trained, and not a prompt.

    See Also
    --------
    attsvm.recommend : Makes one.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(24, 4, 6, seed=0)
    >>> found = attsvm.recommend(problem, attsvm.optimal_tokens(problem), norms=["linf"])
    >>> found.norms, found.share.shape, found.right.shape
    (('frobenius', 'linf'), (2,), (2, 24))
    """

    kind: ClassVar[str] = "recommendation"
    equal_shapes: ClassVar[tuple[tuple[str, ...], ...]] = (("share", "low", "high", "gain", "gain_error"),)

    share: np.ndarray = per_trial()
    low: np.ndarray = per_trial()
    high: np.ndarray = per_trial()
    gain: np.ndarray = per_trial()
    gain_error: np.ndarray = per_trial()
    right: np.ndarray = per_trial()
    soft: np.ndarray = per_trial()
    norms: tuple[str, ...] = shared(read=tuple)
    norm: Norm = shared(write=written_norm, read=read_norm)
    verdict: str = shared()
    reason: str = shared()
    has_queries: bool = shared()

    @property
    def training(self) -> MeasuredTraining:
        """The training towards the Att-SVM of the recommended norm."""
        return trained_by(self.norm, self.has_queries)

    @property
    def optimizer(self) -> Optimizer:
        """The value of :attr:`training`, for :func:`attsvm.train`."""
        return self.training.optimizer

    @property
    def attention(self) -> str:
        """The value of :attr:`training`, for :func:`attsvm.train`."""
        return self.training.attention

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each norm, the largest share first.

        Raises ProblemError if pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        columns = {name: getattr(self, name) for name in _NUMBERS}
        return pd.DataFrame(columns, index=pd.Index(self.norms, name="norm")).sort_values("share", ascending=False)

    def __str__(self) -> str:
        width = max(map(len, self.norms))
        lines = [f"{'':{width}}  share  interval of 95 %  gain"]
        for i in np.argsort(-self.share, kind="stable"):
            interval, gain = (
                f"{self.low[i]:.3f} to {self.high[i]:.3f}",
                f"{self.gain[i]:+z.3f} ± {self.gain_error[i]:z.3f}",
            )
            lines.append(f"{self.norms[i]:{width}}  {self.share[i]:.3f}  {interval:16}  {gain}")
        return "\n".join([*lines, self.reason])

    def _summary(self) -> str:
        return f"{self.verdict}; {self.share[self.norms.index(self.verdict)]:.3f} right"

    def _dimensions(self) -> dict[str, tuple[str, ...]]:
        numbers = dict.fromkeys(_NUMBERS, ("norm_name",))
        return {**numbers, "right": ("norm_name", "sequence"), "soft": ("sequence",)}

    def _coordinates(self) -> dict[str, Any]:
        return {"norm_name": self.norms}


_NUMBERS = ("share", "low", "high", "gain", "gain_error")


def recommend(
    problem: Problem,
    selected: Any = None,
    norms: Iterable[str | float | Norm] | None = None,
    *,
    folds: int = 8,
    seed: int = 0,
) -> Recommendation:
    """Say which norm suits the data, by cross-validated Att-SVMs.

    The sequences are dealt out to folds. For each fold and norm, the Att-SVM of the other sequences is solved, and its
    selection is compared with the given one in the sequences of the fold. The norm with the largest share of right
    tokens is recommended if it is better than the Frobenius norm by more than one standard error of the difference.

    Parameters
    ----------
    problem : Problem
        One problem with one attention head. Labels are used only without ``selected``.
    selected : int array, shape (n[, Q]), or bool array, shape (n[, Q], T), optional
        The token or the set of tokens that each query should select: what is known of the data,
        :func:`attsvm.optimal_tokens`, a :class:`attsvm.Run`, a :class:`attsvm.Solution` or, with the sets that runs
        keep under several classes, a :class:`attsvm.Prediction`. By default no token is known: an
        :class:`attsvm.AttentionClassifier` is trained for each norm and fold, and its accuracy counts. Then the problem
        needs labels, and neither queries nor keys.
    norms : iterable of str, float or Norm, optional
        As for :func:`attsvm.solve_svm`. By default Frobenius, nuclear, spectral, ℓ1, ℓ1.5, ℓ3, ℓ∞, ℓ2,1 over rows and
        over columns, and γ2; those of vectors for a prompt. The Frobenius norm is always compared.
    folds : int
        At least 2. With fewer sequences than folds, each sequence is a fold.
    seed : int
        Deals out the sequences.

    Returns
    -------
    Recommendation

    Raises
    ------
    ProblemError
        If an argument is not as described, or sets of several tokens cannot be kept.

    See Also
    --------
    attsvm.Recommendation : The result.
    attsvm.margin_profile : Which norm's margin an optimiser maximises.

    Notes
    -----
    Breiman, Friedman, Olshen and Stone (1984), *Classification and Regression Trees*, section 3.4.3, choose the size of
    a tree by a rule of one standard error. Theirs is the error of the share, and here it is that of the gain. The folds
    share training sequences, so the intervals are approximate. ``python benchmarks/recommend.py`` measures for planted
    weights how much is lost by the choice.

    Examples
    --------
    Planted weights of rank one decide what is selected, and the nuclear norm needs fewer sequences to find them:

    >>> import attsvm, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> tokens, queries = rng.standard_normal((40, 5, 10)), rng.standard_normal((40, 10))
    >>> planted = np.outer(rng.standard_normal(10), rng.standard_normal(10))
    >>> selected = np.einsum("ntd,de,ne->nt", tokens, planted, queries).argmax(1)
    >>> problem = attsvm.Problem(tokens, queries=queries)
    >>> found = attsvm.recommend(problem, selected)
    >>> found.verdict, found.attention
    ('nuclear', 'factored')

    Once the problem has labels and a head, ``attsvm.train(problem, attention=found.attention,
    optimizer=found.optimizer)`` trains towards the Att-SVM of this norm, for the tokens that training selects.
    """
    check_is_problem(problem)
    problem.check_one_head()
    if problem.batch_shape:
        raise ProblemError(f"problem: expected one problem, got batch axes {problem.batch_shape}")
    number = problem.num_sequences
    if number < 2:
        raise ProblemError(f"problem: expected at least two sequences, got {number}")
    order = np.random.default_rng(check_seed(seed)).permutation(number)
    parts = np.array_split(order, min(check_integer("folds", folds, 2), number))
    if selected is None:
        used = _distinct(problem, FOR_CLASSIFIERS if norms is None else norms)
        right, soft, infeasible = accuracies(problem, used, parts, seed), np.zeros(number, dtype=bool), False
        active = np.ones((number, 1), dtype=bool)
    else:
        active = problem.canonical.active
        if not active.any():
            raise ProblemError("problem: expected at least one query in use")
        sets = selection_sets(problem, selected)
        used = _distinct(problem, (FOR_MATRICES if problem.has_queries else FOR_PROMPTS) if norms is None else norms)
        right, soft = right_queries(problem, sets, used, parts)
        # each fold may have an Att-SVM where all sequences together have none
        infeasible = solve_svm(problem, selected, tol=TOLERANCE).status == Status.INFEASIBLE
    names = tuple(norm.name for norm in used)
    counts = active.sum(axis=1)
    totals = (right * active).sum(axis=2)
    share, error = _ratio(totals, counts)
    gain, gain_error = _ratio(totals - totals[0], counts)
    low, high = _interval(share, error, int((counts > 0).sum()))
    best = int(np.argmax(share))
    better = gain[best] > gain_error[best]
    chosen = used[best] if better else DEFAULT
    of_sequences = np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)
    return Recommendation(
        Status.FINISHED,
        share,
        low,
        high,
        gain,
        gain_error,
        of_sequences,
        soft,
        norms=names,
        norm=chosen,
        verdict=chosen.name,
        reason=_reason(names[best], gain[best], gain_error[best], better, soft, infeasible),
        has_queries=problem.has_queries,
    )


_NORMAL = 1.96
"""The quantile of the normal distribution for 95 %."""


def _distinct(problem: Problem, norms: Iterable[str | float | Norm]) -> list[Norm]:
    """The Frobenius norm and the other norms, each once; of a prompt, several norms of matrices are the same norm."""
    if isinstance(norms, str):
        raise ProblemError(f"norms: expected a list of norms, got {norms!r}")
    parsed = [parse_norm(norm) for norm in norms]
    if not parsed:
        raise ProblemError("norms: expected at least one norm to compare with frobenius")
    return list(dict.fromkeys([DEFAULT, *(norm if problem.has_queries else norm.of_vectors for norm in parsed)]))


def _ratio(totals: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Σ totals / Σ counts over the sequences, and its standard error, as of a ratio of means of clusters."""
    number, ratio = len(counts), totals.sum(axis=1) / counts.sum()
    rest = totals - ratio[:, None] * counts
    return ratio, np.sqrt(number / (number - 1) * (rest**2).sum(axis=1)) / counts.sum()


def _interval(share: np.ndarray, error: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of a share over this many sequences, with the standard error that was found.

    Unlike share ± 1.96 error it has a length, too, where all sequences agree.
    """
    extra = _NORMAL**2 / number
    centre = (share + extra / 2) / (1 + extra)
    half = _NORMAL * np.sqrt(error**2 + extra / (4 * number)) / (1 + extra)
    return np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)


def _reason(best: str, gain: float, error: float, better: bool, soft: np.ndarray, infeasible: bool) -> str:
    if better:
        said = f"{best} is better than frobenius by {gain:z.3f} ± {error:z.3f}"
    elif gain > 0:
        said = (
            f"no norm is clearly better than frobenius here: {best} is better by {gain:z.3f}, "
            f"with a standard error of {error:z.3f}"
        )
    else:
        said = "no norm is better than frobenius here"
    if infeasible:
        said += "; no weights give the selections of all sequences at once"
    if soft.any():
        said += f"; {soft.sum()} of {len(soft)} sequences use soft margins, because the other folds have no Att-SVM"
    return said + "."
