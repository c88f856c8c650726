"""Each figure's quick run meets its criterion, and each criterion fails on a planted wrong input."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attsvm.papers import FIGURES, Arrays, Standing, run

pytestmark = pytest.mark.slow

Planted = Callable[[Arrays], None]


def test_whatever_is_drawn_at_random_has_a_seed_among_its_sizes():
    numbers = {"seeds", "problems", "runs", "starts"}
    assert [figure.name for figure in FIGURES if numbers & set(figure.full) and "seed" not in figure.full] == []


def _set(name: str, value: float) -> Planted:
    return _changed(name, lambda array: np.full_like(array, value))


def _times(name: str, factor: float) -> Planted:
    return _changed(name, lambda array: factor * array)


def _stale(name: str, axis: int = 0) -> Planted:
    """A curve that never moves from where it began, with the steps along an axis."""
    return _changed(name, lambda array: np.repeat(array.take([0], axis), array.shape[axis], axis))


def _reversed(name: str, axis: int = 0) -> Planted:
    """An axis the other way round: the numbers of each solution, or of each norm, are given to another."""
    return _changed(name, lambda array: np.flip(array, axis).copy())


def _reordered(name: str, order: list[int]) -> Planted:
    """The entries of the last axis in another order."""
    return _changed(name, lambda array: array[..., order])


def _changed(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Planted:
    return lambda arrays: arrays.update({name: change(arrays[name])})


def _copied(source: str, target: str) -> Planted:
    return lambda arrays: arrays.update({target: arrays[source]})


def _swap(one: str, other: str) -> Planted:
    return lambda arrays: arrays.update({one: arrays[other], other: arrays[one]})


def _plant_in_part(plant: Planted, arrays: Arrays, end: str) -> None:
    """Plant in the arrays whose names have this end, which the planted input does not know of."""
    part = {name.removesuffix(end): array for name, array in arrays.items() if name.endswith(end)}
    plant(part)
    arrays.update({f"{name}{end}": array for name, array in part.items()})


# what would be measured if the claim were false, one line a part of the criterion
PLANTED: dict[str, list[Planted]] = {
    "prompt-one-sequence": [
        _set("error two attractors", 1e-2),
        _set("selected one attractor", 1),
        _set("selected two attractors", 0),
        _set("locally_optimal two attractors", False),
    ],
    "prompt-several-sequences": [
        _stale("error normalised GD"),
        _stale("error GD"),
        _set("at_best GD", False),
        _swap("norm GD", "norm normalised GD"),
    ],
    "joint-prompt": [
        _set("selected slack", 0),
        _stale("head_error no slack"),
        _stale("plain_error no slack"),
        _swap("plain_error slack", "relaxed_error slack"),
        _set("relaxed_queries slack", False),
    ],
    "key-prompt": [
        _set("decided W", False),
        _stale("predicted W"),
        _set("parameter W", 0.1),
        _swap("predicted p", "ℓ2 p"),
        _copied("predicted p", "ℓ2 p"),
        _set("predicted_relaxed head faster", False),
        _set("predicted_relaxed head slower", True),
        _swap("plain head slower", "relaxed head slower"),
        _swap("plain head faster", "relaxed head faster"),
        _stale("relaxed head faster"),
        _set("head head faster", 0.1),
        _set("apart head slower", False),
    ],
    "losses": [
        _set("selected linear", 0),
        _set("error logistic", 1e-2),
        _set("second exponential", 0.0),
        _swap("error linear", "error exponential"),
    ],
    "factored-paths": [
        _swap("errors combined 5", "errors factored 5"),
        _reversed("errors factored 5"),
        _set("errors combined 5", 0.2),
        _set("at_best combined 5", False),
        _set("undecided factored 5", True),
    ],
    "saturation": [
        _swap("to frobenius W", "to nuclear W"),
        _swap("to frobenius per factor", "to nuclear per factor"),
        _stale("to nuclear jointly"),
        _stale("to frobenius W"),
        _stale("probability per factor"),
        _set("undecided jointly", True),
        _set("to nuclear per factor", 1e-5),
    ],
    "rank": [
        _swap("frobenius", "nuclear"),
        _set("frobenius", 99.0),
        _set("disagreeing", 1.0),
        _set("gap", 1e-6),
        _reversed("columns value"),
        _set("columns value", 1.1),
        _set("columns free", True),
        _set("columns error", 0.1),
        _set("columns reached", 0.9),
        _set("columns undecided", True),
    ],
    "feasibility": [
        _set("feasible", 0.9),
        _reversed("feasible", 1),
        _set("undecided", 0.5),
    ],
    "kinds": [
        _reversed("share combined", 1),
        # local and not local, then local and undecided, change places
        _reordered("share factored", [0, 2, 1, 3]),
        _reordered("share combined", [0, 3, 2, 1]),
        _stale("share factored", 1),
        _set("left combined", 40),
        _set("all_support wide", 0.5),
    ],
    "global-conditions": [
        _set("astray n = 3, T = 4", True),
        _set("astray n = 3, T = 4", False),
        _set("above n = 3, T = 4", True),
        _set("holds n = 3, T = 4", False),
        _set("astray exceptions", False),
        _set("astray exceptions", True),
        _set("holds exceptions", True),
    ],
    "landscape": [
        _set("number all tokens support", 1),
        _set("number scores can be ordered", 1),
        _set("number scores cannot be ordered", 0),
    ],
    "local-cone": [
        _set("left n = 2, T = 3", True),
        _set("elsewhere n = 2, T = 3", True),
        _set("ratio n = 2, T = 3", 1.5),
        _set("below n = 2, T = 3", 0.0),
    ],
    "nonlinear-head": [
        _swap("combined 6", "one token 6"),
        _swap("direction 6", "one token 6"),
        _swap("combined 6", "direction 6"),
        _stale("combined 6"),
        _reversed("dropped 6"),
        _set("several 6", False),
        _changed("dropped 6", lambda array: np.maximum(array, 1e-15)),
    ],
    "nonlinear-path": [
        _set("to optimal GELU", 1e-2),
        _set("to kept GELU", 1e-2),
        _set("to single GELU", 0.0),
        _set("solved GELU", False),
        _set("optimal GELU", False),
        _set("kept GELU", 1),
        _set("kept GELU", 2),
        _set("constants GELU", 1.0),
    ],
    "vanishing-penalty": [
        _set("solved W", False),
        _set("optimal (K, Q)", False),
        _swap("penalty W", "penalty (K, Q)"),
        _stale("ball W", 1),
        _set("apart W", 1e-6),
        _set("mismatch (K, Q)", 1e-2),
        _set("size W", 1.0),
    ],
    "one-layer-transformer": [
        _swap("combined W, V", "one token W, V"),
        _swap("combined W, V", "direction W, V"),
        _set("dropped W, V", 1e-10),
        _stale("combined W, V"),
        _set("several W, V", False),
        _set("combined W, V", 0.05),
        _set("combined W, V, MLP", 0.0),
        _set("decided W, V, MLP, W faster", False),
        _set("several W, V, MLP, W faster", True),
        _stale("combined W, V, MLP, W faster"),
    ],
    "tokens-kept": [
        _reversed("kept"),
        _set("kept", 1),
        _set("kept", 10),
        _set("same", False),
        _set("error", 0.1),
    ],
    "sequence-to-sequence": [
        _stale("error whole combined"),
        _set("error causal combined", 1e-2),
        _stale("error whole factored"),
        _set("undecided causal factored", True),
        _set("feasible whole combined", False),
        _stale("path causal factored"),
        _set("solved whole combined", False),
    ],
    "mirror-path": [
        _swap("divergence 1.75", "divergence 3"),
        _stale("divergence 2", 1),
        _swap("ray 1.75", "ray 3"),
        _set("undecided 2", True),
    ],
    "bregman": [
        _reversed("divergence 1.75"),
        _stale("divergence 3", 1),
        _set("decided 2", False),
        _set("divergence 2", 0.5),
    ],
    "joint-mirror": [
        _reversed("divergence 1.75"),
        _stale("divergence 3", 1),
        _stale("head_divergence 3"),
        _stale("attention 2"),
        _set("head_support 2", False),
    ],
    "rates": [
        _set("evidence gradient descent", 99.0),
        _set("evidence normalised GD", -99.0),
        _stale("error gradient descent"),
    ],
    "optimizer-norms": [
        _reversed("ratio"),
        _set("ratio", 0.5),
        _set("decided", False),
        _times("ratio", 1.1),
    ],
    "mini-batches": [
        _set("gap log excess of the batch", 1e-6),
        _set("assumed log excess of the batch", False),
        _swap("to_batch log excess of the batch", "to_att_svm log excess of the batch"),
        _swap("to_att_svm running average", "to_att_svm norm of the batch"),
        lambda arrays: arrays.update({"to_att_svm running average": arrays["to_att_svm running average"][:, ::-1]}),
    ],
    "step-length": [
        _reversed("ratio"),
        _set("ratio", 0.99),
        _times("ratio", 0.9),
        _times("change", 1e-3),
        _set("decided", False),
    ],
    "earliest-selection": [
        _swap("of_all", "all_bound"),
        _swap("of_query", "query_bound"),
        _set("all_bound", 1.0),
        lambda arrays: arrays.update(
            {"of_all": np.where(np.arange(arrays["of_all"].shape[1]) < 5, np.inf, arrays["of_all"])}
        ),
    ],
    "factored-optimizers": [
        _reversed("ratio"),
        _set("ratio", 0.5),
        _set("change", 5.0),
        _set("decided", False),
        _times("ratio", 1.1),
    ],
    "multi-head": [
        _reordered("ratio", [1, 0, 2]),
        _set("ratio", 0.99),
        _times("ratio", 0.9),
        _times("ratio", 1.1),
        _set("decided", False),
    ],
    "layouts": [
        _reordered("ratio", [0, 2, 1, 3]),
        _set("ratio", 0.99),
        _times("ratio", 0.9),
        _times("ratio", 1.1),
        _set("decided", False),
    ],
    "layers": [
        _swap("error 2", "plain 2"),
        _set("plain 2", 1e-9),
        _set("saturated 2", False),
        _set("apart 2", 0.2),
    ],
    "path": [
        _set("undecided", True),
        _set("converged", False),
        _stale("error path"),
        _stale("error run"),
        _reversed("apart"),
        _set("apart", 0.3),
    ],
    "next-token-global": [
        _set("missing acyclic", 1e-2),
        _set("missing past", 1e-2),
        _set("apart past", 1e-6),
        _swap("missing past", "plain past"),
        _set("plain past", 1e-5),
        _set("finite past", 0.5),
    ],
    "next-token-local": [
        _swap("kept orthogonal", "labels orthogonal"),
        _set("differs orthogonal", False),
        _set("kept orthogonal", 0.9),
        _swap("once orthogonal", "twice orthogonal"),
        _set("twice orthogonal", 0.99),
        lambda arrays: arrays.update({name: arrays[name][:10] for name in arrays if np.ndim(arrays[name])}),
    ],
    "next-token-norms": [
        _set("missing K and Q acyclic", 0.02),
        _set("missing W, p = 1.75 cyclic", 0.1),
        _reversed("missing W, p = 1.75 acyclic", 1),
    ],
    "weight-decay": [
        lambda arrays: arrays.update({"gap frobenius": 1.1 * arrays["ratio frobenius"]}),
        _set("probability linf", 1.1),
        _set("error linf", 0.1),
        lambda arrays: arrays.update({"closed linf": arrays["ratio linf"] - 10}),
    ],
    "adamw-epsilon": [
        _set("residual 0.0001", 1e-3),
        _set("error 0.0001", 0.1),
        _swap("frobenius 0.0001", "linf 0.0001"),
    ],
    "attention-today": [
        _stale("missing sink logit"),
        _set("decided relative", False),
        _stale("missing sparsemax"),
        _set("counts sparsemax", False),
        _swap("missing sparsemax", "other sparsemax"),
        _set("other sparsemax", 1e-6),
        _stale("missing sigmoid"),
        _swap("missing gain", "other gain"),
        _copied("missing gain", "other gain"),
        _set("decided gain", False),
        _set("missing rotations", -0.01),
        _set("missing rotations", 0.06),
        _set("counts rotations", False),
    ],
    "normalised-descent": [
        _set("left constant", True),
        _set("bound growing", 1e-9),
        _set("bound decaying", np.inf),
        _set("growth constant", 0.99),
        _set("proved growing", False),
        _stale("error decaying"),
    ],
    "classes": [
        _set("W 2", 1e-3),
        _set("twin 2", 1e-6),
        _set("holds 4", False),
        _set("several 4", False),
        _set("W − W_fin 4", 0.1),
        _copied("W − W_fin 4", "W 4"),
        _copied("W − W_fin 4", "W to one token 4"),
        _stale("W − W_fin 4"),
    ],
    "leave-one-out": [
        _swap("bound hard margins", "error hard margins"),
        _swap("bound soft margins", "error soft margins"),
        _set("bound soft margins", np.nan),
        _set("bound soft margins", 1.0),
        _set("error hard margins", 0.5),
        _set("bound hard margins", 0.6),
    ],
    "limit": [
        _copied("error plain", "error exact"),
        _copied("error exact", "error plain"),
        _set("undecided", True),
    ],
}


# whose quick runs make many steps of many trials
OPTIMIZED = {"global-conditions", "kinds", "next-token-local"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.optimized if name in OPTIMIZED else ()) for name in FIGURES.names()]
)
def test_quick_run_holds_and_its_criterion_can_fail(name, tmp_path):
    figure = FIGURES.find(name)
    outcome = run(figure, tmp_path, quick=True)
    assert outcome.verdict.standing is Standing.HOLDS, outcome.verdict.why
    assert outcome.reused == 0
    assert PLANTED.get(name), f"{name}: expected at least one planted wrong input, got none"
    for number, plant in enumerate(PLANTED[name]):
        for end in ("", " self") if "queries" in outcome.sizes else ("",):
            arrays = {name: array.copy() for name, array in outcome.arrays.items()}
            _plant_in_part(plant, arrays, end)
            judged = figure.judge(outcome.sizes, arrays)
            assert judged.standing is not Standing.HOLDS, f"planted input {number}{end} passes"


def test_figures_are_complete_and_their_sizes_agree():
    assert {figure.name for figure in FIGURES} == set(FIGURES.names())
    for figure in FIGURES:
        assert figure.full.keys() == figure.quick.keys()
        assert figure.title, figure.claim
        assert figure.criterion


@pytest.mark.parametrize("page", ["README.md", "docs/guide/reproduce.md"])
def test_the_pages_count_the_figures(page):
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    assert re.findall(r"(\d+) figures and tables", text) == [str(len(FIGURES.names()))]
