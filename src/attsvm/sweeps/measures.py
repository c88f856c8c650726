"""The measures of a sweep, by name.

A measure outside the package is a function, by its import path, or a subclass of :class:`attsvm.sweeps.Measure`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from attsvm._utils.extensions import find_named
from attsvm.errors import ProblemError
from attsvm.measures import attention_of, direction_error, margin
from attsvm.norms import norms_in, parse_norm
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.selection import selection_sets
from attsvm.sweeps.block import Block
from attsvm.sweeps.measure import MISSING, YES_NO, Measure, OfFunction, Output
from attsvm.theory import Kind, classify
from attsvm.training import Run

STATUSES = tuple(status.value for status in (Status.OPTIMAL, Status.INACCURATE, Status.INFEASIBLE))


class Feasible(Measure):
    """Whether the Att-SVM of the optimal tokens has a solution. Nothing is trained for it.

    ``feasible`` is missing where neither weights nor multipliers prove the answer: the status is ``inaccurate``.
    ``gap`` is the relative duality gap of the weights of a feasible problem. ``bound`` is what the multipliers of an
    infeasible problem prove. Each is missing in the other problems, so its mean is that of the problems that have it.
    """

    name = "feasible"
    outputs: ClassVar[Mapping[str, Output]] = {
        "feasible": Output("separable problems", codes=YES_NO),
        "feasibility_status": Output("status of the Att-SVM", codes=STATUSES),
        "gap": Output("relative duality gap", partial=True),
        "bound": Output("Farkas bound", partial=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.optimal_solution()
        status = np.asarray(solution.status)
        place = np.argmax(status[..., None] == np.array(STATUSES), axis=-1)
        feasible = np.array([1, MISSING, 0])[place]
        return {
            "feasible": feasible,
            "feasibility_status": place,
            "gap": np.asarray(solution.gap),
            "bound": np.where(status == Status.INFEASIBLE, solution.bound, np.nan),
        }


class LossMeasure(Measure):
    """The loss after the last step."""

    name = "loss"
    several_heads = True
    outputs: ClassVar[Mapping[str, Output]] = {"loss": Output("training loss")}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        return {"loss": np.asarray(block.run.loss)}


class NumSteps(Measure):
    """The steps made, and the first recorded step from which on every softmax is saturated; missing if undecided."""

    name = "decision_step"
    outputs: ClassVar[Mapping[str, Output]] = {
        "decision_step": Output("steps to decision", units="steps", count=True),
        "steps": Output("steps made", units="steps", count=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        return {"decision_step": block.decided, "steps": np.asarray(block.run.step)}


KINDS = tuple(kind.value for kind in Kind)


class KindOfConvergence(Measure):
    """Whether a run ends at the optimal tokens, at a local optimum, or at neither (:func:`attsvm.classify`)."""

    name = "kind"
    outputs: ClassVar[Mapping[str, Output]] = {"kind": Output("kind of convergence", codes=KINDS)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        kinds = classify(block.problem, block.run, block.norm).kind
        return {"kind": np.argmax(np.asarray(kinds)[..., None] == np.array(KINDS), axis=-1)}


class DirectionErrorMeasure(Measure):
    """1 − correlation of the weights and the Att-SVM of the selected tokens.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    name = "direction_error"
    outputs: ClassVar[Mapping[str, Output]] = {"direction_error": Output("direction error")}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.solution()
        axes = (-2, -1) if block.trained_problem.has_queries else -1
        error = direction_error(block.trained_weights, np.nan_to_num(solution.direction), axis=axes)
        return {"direction_error": np.where(block.comparable(solution), error, np.nan)}


@dataclass(frozen=True)
class MarginRatio(Measure):
    """The margin ratio of the selected tokens in each norm.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    norms: tuple[str, ...] = ("frobenius",)
    name = "margin_ratio"

    def __post_init__(self) -> None:
        for norm in self.norms:
            parse_norm(norm)

    def declared(self) -> Mapping[str, Output]:
        """One output, with an axis of norms."""
        return {"margin_ratio": Output("margin ratio", axes={"measured_norm": self.norms})}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        ratios = []
        for norm in self.norms:
            solution = block.solution(norm)
            achieved = margin(block.trained_problem, block.trained_weights, block.run.selected, norm)
            ratio = np.asarray(achieved) * np.asarray(solution.value)
            ratios.append(np.where(block.comparable(solution), ratio, np.nan))
        return {"margin_ratio": np.stack(ratios, axis=-1)}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Norms, divided by semicolons, or by commas unless the whole text names one norm."""
        return cls(tuple(norms_in(text)))


class SupportCount(Measure):
    """The support tokens of the Att-SVM of the selected tokens.

    Missing where the trial is undecided or the Att-SVM has no solution of status ``optimal``.
    """

    name = "support_count"
    outputs: ClassVar[Mapping[str, Output]] = {"support_count": Output("support tokens", count=True)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.solution()
        # tokens with equal keys are one constraint
        support = solution.support & block.trained_problem.copies.distinct.reshape(solution.support.shape)
        counts = support.reshape(len(support), -1).sum(axis=1)
        return {"support_count": np.where(block.comparable(solution), counts, MISSING)}


class AllSupport(Measure):
    """Whether every token that is not optimal is a support token of the Att-SVM of the optimal tokens.

    Nothing is trained for it. It is "no" for an infeasible Att-SVM, and missing for an inaccurate one.
    """

    name = "all_support"
    outputs: ClassVar[Mapping[str, Output]] = {"all_support": Output("all tokens support", codes=YES_NO)}

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        solution = block.optimal_solution()
        others = block.problem.canonical.allowed & ~selection_sets(block.problem, block.optimal)
        counts = solution.support.reshape(len(solution.support), -1).sum(axis=1)
        inaccurate = np.asarray(solution.status) == Status.INACCURATE
        return {"all_support": np.where(inaccurate, MISSING, counts == others.sum(axis=(-3, -2, -1)))}


RELATIVE = 1e-6
"""Singular values below this fraction of the largest do not count."""


class RankMeasure(Measure):
    """The singular values above 1e-6 of the largest, and the effective rank exp(−Σ p log p), p = σ/Σσ."""

    name = "rank"
    outputs: ClassVar[Mapping[str, Output]] = {
        "rank": Output("rank", count=True),
        "effective_rank": Output("effective rank"),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        if not block.problem.has_queries:
            raise ProblemError("rank: expected a problem with queries, got a prompt, whose weights are a vector")
        values = np.linalg.svd(block.run.weights, compute_uv=False)
        total = values.sum(axis=-1, keepdims=True)
        share = values / np.where(total > 0, total, 1.0)
        entropy = -np.sum(share * np.log(np.where(share > 0, share, 1.0)), axis=-1)
        return {
            "rank": np.sum((values > RELATIVE * values[..., :1]) & (values > 0), axis=-1),
            "effective_rank": np.where(total[..., 0] > 0, np.exp(entropy), 0.0),
        }


class Error(Measure):
    """The share of queries whose output has the wrong sign; ``test_error`` is missing if the source has no test data.

    An output of exactly 0 is wrong.
    """

    name = "error"
    outputs: ClassVar[Mapping[str, Output]] = {
        "train_error": Output("training error"),
        "test_error": Output("test error"),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Apply the trained attention and its linear head."""
        test = block.test
        wrong = _share_wrong(block.problem, block.run)
        return {
            "train_error": wrong,
            "test_error": np.full(wrong.shape, np.nan) if test is None else _share_wrong(test, block.run),
        }


def _share_wrong(problem: Problem, run: Run) -> Any:
    if run.head != "linear" or problem.num_classes is not None or problem.labels is None or problem.heads_shape:
        raise ProblemError("error: expected one attention head, a linear head and labels ±1")
    # the true scale of weights at the border of the floats makes no difference: every softmax is saturated there
    attention = attention_of(problem, run.weights)
    values = np.einsum("bntd,bd->bnt", problem.tokens, run.parameters["v"])
    outputs = np.einsum("bnqt,bnt->bnq", attention, values)
    labels = problem.labels if problem.has_query_axis else problem.labels[..., None]
    active = problem.canonical.active
    return np.sum(active & (labels * outputs <= 0), axis=(1, 2)) / active.sum(axis=(1, 2))


class NoiseSelected(Measure):
    """The share of noise tokens among the selected ones, of all sequences and of those with a flipped label."""

    name = "noise_selected"
    outputs: ClassVar[Mapping[str, Output]] = {
        "noise_selected": Output("share of noise tokens selected"),
        "noise_selected_flipped": Output("share of noise tokens selected, flipped labels", partial=True),
    }

    def measure(self, block: Block) -> dict[str, np.ndarray]:
        """Look up the selected tokens; without flipped labels their share is missing."""
        extras = block.drawn.extras
        if not {"flipped", "noise_tokens"} <= set(extras):
            raise ProblemError("noise_selected: expected a source with flipped labels and noise tokens, as 'noise'")
        noise = np.take_along_axis(extras["noise_tokens"], block.run.selected, axis=-1)
        flipped = extras["flipped"]
        number = flipped.sum(axis=-1)
        with np.errstate(invalid="ignore"):
            of_flipped = (noise & flipped).sum(axis=-1) / number
        return {"noise_selected": noise.mean(axis=-1), "noise_selected_flipped": of_flipped}


MEASURES: dict[str, type[Measure]] = {
    measure.name: measure
    for measure in (
        AllSupport,
        DirectionErrorMeasure,
        Error,
        Feasible,
        KindOfConvergence,
        LossMeasure,
        MarginRatio,
        NoiseSelected,
        RankMeasure,
        NumSteps,
        SupportCount,
    )
}


def parse_measure(measure: "str | Measure | type[Measure] | Callable[..., Any]") -> Measure:
    """Read a measure: a name, ``NAME=ARGUMENTS``, the import path of a function, a function or a measure.

    Raises ProblemError if there is no such measure, or it has other arguments.
    """
    if isinstance(measure, str):
        name, equals, text = measure.partition("=")
        known: Mapping[str, Measure | type[Measure]] = MEASURES
        found = find_named("measure", known, name, _parse_object)
        if equals:
            return (found if isinstance(found, type) else type(found)).from_text(text)
        return found() if isinstance(found, type) else found
    return _parse_object(measure)


def _parse_object(measure: object) -> Measure:
    if isinstance(measure, Measure):
        return measure
    if isinstance(measure, type) and issubclass(measure, Measure):
        return measure()
    if callable(measure):
        return OfFunction(measure)
    raise ProblemError(f"measures: expected names, measures or functions, got {measure!r}")
