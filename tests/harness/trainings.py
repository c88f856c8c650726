"""Training against an mpmath softmax: every attention, head, loss and optimizer, over 200 steps.

A case is one combination with a batch of random problems, so that they share one compiled program. Two things are
checked. Single steps: from the weights that the library has reached, the next weights are those of the definition, for
the first steps and for some later ones. Whole trainings: one problem of the batch is trained by the reference alone.

Gradients have 50 digits. Their rounding errors in the library are bounded entry by entry by the oracle, as in
tests/training/test_gradients.py. The reference makes each step with the gradient itself and with gradients, weights and
losses that are perturbed by these bounds; the spread of the results is the tolerance. A step across a jump (the sign of
an entry that is zero up to rounding, a tie of singular values) has a spread of its own length, so it is not compared.
Where no derivative exceeds the largest rounding error, a parameter whose own derivatives are zero up to rounding is
left out. Weights are perturbed by the rounding error of the last step, too: it is large beside an entry that has come
near zero, whose mirror variable the library keeps.
How much the error of a step grows until the end is measured: one problem is in the batch three times, with initial
weights, those of a trained head too, that differ in the ninth digit.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

import attsvm
from attsvm import heads, optimizers
from attsvm.losses import LOSSES
from attsvm.optimizers import OPTIMIZERS
from attsvm.training import ATTENTIONS
from attsvm.training.loop import program
from harness.campaign import Campaign, Outcome
from oracles import steps as reference
from oracles import training as oracle

STEPS, FIRST, LATER = 200, 8, 4
PROBLEMS = 5
# the first problem is in the batch three times
LANES = (0, 0, 0, 1, 2, 3, 4)
CHECKED = (0, 3, 4, 5, 6)
DIGITS = 50
CLASSES = 3
NUDGE = 1e-9
LINEAR = 1e-3


def relative_error(eps: float, condition: Any) -> Any:
    """Of an entry of the gradient, over the sum of the sizes of its terms: as in tests/training/test_gradients.py."""
    return 4096 * eps + 32 * eps * condition


# --- what is trained: each draws its options, and returns the library's object and the oracle's function


def _linear(rng: Any, dim: int, classes: bool) -> Any:
    rows = (lambda p: p["v"]) if classes else (lambda p: p["v"][None])
    return heads.Linear(), lambda p, o, a: oracle.linear(rows(p), o, a)


def _quadratic(rng: Any, dim: int, classes: bool) -> Any:
    curvature = _drawn(rng)
    return heads.Quadratic(curvature), lambda p, o, a: oracle.quadratic(oracle.exact(curvature), p["v"][None], o, a)


def _mlp(rng: Any, dim: int, classes: bool) -> Any:
    width, activation = int(rng.integers(1, 4)), str(rng.choice(["relu", "gelu"]))
    output = _drawn(rng, *((CLASSES, width) if classes else (width,)))
    head = heads.MLP(_drawn(rng, width, dim), output, _drawn(rng, width), activation)
    rows = (lambda p: p["output"]) if classes else (lambda p: p["output"][None])
    sigma = {"relu": oracle.relu, "gelu": oracle.gelu}[activation]
    return head, lambda p, o, a, **of: oracle.hidden_layer(partial(sigma, **of), p["hidden"], rows(p), p["bias"], o, a)


def _value_mlp(rng: Any, dim: int, classes: bool) -> Any:
    width, inner = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    output = _drawn(rng, *((CLASSES, width) if classes else (width,)))
    head = heads.ValueMLP(_drawn(rng, dim, inner), heads.MLP(_drawn(rng, width, inner), output, _drawn(rng, width)))
    rows = (lambda p: p["output"]) if classes else (lambda p: p["output"][None])
    return head, lambda p, o, a: oracle.value_matrix(oracle.relu, p["value"], p["hidden"], rows(p), p["bias"], o, a)


def _tanh_sum(parameters: Any, o: Any) -> Any:
    return parameters["c"] * jnp.sum(jnp.tanh(parameters["A"] @ o))


def _function(rng: Any, dim: int, classes: bool) -> Any:
    head = heads.FunctionHead(_tanh_sum, {"A": _drawn(rng, 2, dim), "c": _drawn(rng)})
    return head, lambda p, o, a: oracle.tanh_sum(p["A"], p["c"], o, a)


HEADS = {
    "linear": _linear,
    "quadratic": _quadratic,
    "mlp": _mlp,
    "value_mlp": _value_mlp,
    "function": _function,
}
OF_CLASSES = ("linear", "mlp", "value_mlp")
OF_ATTENTION = ("W", "p", "K", "Q", "g")
MARGIN_LOSSES = ("logistic", "exponential", "linear")


def _gradient_descent(rng: Any, eta: float) -> Any:
    relative = bool(rng.integers(2))
    return {"learning_rate": eta, "relative": relative}, reference.descent(eta, relative=relative)


def _normalized_gradient_descent(rng: Any, eta: float) -> Any:
    scope, relative = str(rng.choice(["all", "each"])), bool(rng.integers(2))
    rate = optimizers.Decaying(eta, 50) if rng.integers(2) else eta
    given = (lambda k: eta / (1 + k / 50)) if callable(rate) else eta
    step = reference.descent(given, normalize=True, scope=scope, relative=relative)
    return {"learning_rate": rate, "scope": scope, "relative": relative}, step


def _polyak(rng: Any, eta: float) -> Any:
    target, longest = float(rng.choice([-5.0, 0.0, 0.25])), 5 * eta
    return {"target": target, "longest": longest}, reference.polyak(target, longest)


def _mirror_descent(rng: Any, eta: float) -> Any:
    p, scope = float(rng.choice([1.25, 1.75, 2.0, 3.0])), str(rng.choice(["all", "each"]))
    options = {"normalize": bool(rng.integers(4)), "scope": scope, "relative": not rng.integers(4)}
    return {"p": p, "learning_rate": eta, **options}, reference.mirror_descent(p, eta, **options)


def _steepest_descent(rng: Any, eta: float) -> Any:
    norm = str(rng.choice(["linf", "l1", "frobenius", "spectral", "nuclear", "1.5", "3"]))
    options = {"normalize": bool(rng.integers(4)), "relative": not rng.integers(4)}
    given = norm if norm[0].isalpha() else float(norm)
    return {"norm": given, "learning_rate": eta, **options}, reference.steepest_descent(norm, eta, **options)


def _adam(rng: Any, eta: float) -> Any:
    return {"learning_rate": eta}, reference.adam(eta)


def _muon(rng: Any, eta: float) -> Any:
    return {"learning_rate": eta}, reference.muon(eta)


def _of_matrices(norm: str) -> Any:
    def drawn(rng: Any, eta: float) -> Any:
        # with one head of attention, each parameter is one matrix
        scope, decay = str(rng.choice(["heads", "fused"])), float(rng.choice([0.0, 0.1]))
        rule = reference.weight_decay(reference.steepest_descent(norm, eta), eta * decay)
        return {"learning_rate": eta, "scope": scope, "weight_decay": decay}, rule

    return drawn


INNER = {
    "gradient_descent": _gradient_descent,
    "normalized_gradient_descent": _normalized_gradient_descent,
    "mirror_descent": _mirror_descent,
    "steepest_descent": _steepest_descent,
}


def _inner(rng: Any, eta: float) -> Any:
    name = str(rng.choice(list(INNER)))
    options, step = INNER[name](rng, eta)
    return OPTIMIZERS.find(name)(**options), step


def _momentum(rng: Any, eta: float) -> Any:
    inner, step = _inner(rng, eta)
    decay, nesterov = float(rng.choice([0.0, 0.5, 0.9])), bool(rng.integers(2))
    return {"inner": inner, "decay": decay, "nesterov": nesterov}, reference.momentum(step, decay, nesterov)


def _normalized(rng: Any, eta: float) -> Any:
    inner, step = _inner(rng, eta)
    scope = str(rng.choice(["all", "each"]))
    return {"inner": inner, "scope": scope}, reference.normalized(step, scope)


RULES = INNER | {
    "polyak": _polyak,
    "adam": _adam,
    "muon": _muon,
    "momentum": _momentum,
    "normalized": _normalized,
    "spectral_descent": _of_matrices("spectral"),
    "row_descent": _of_matrices("rows"),
    "column_descent": _of_matrices("columns"),
}
# what takes the longest to compile
SLOW = {"function", "factored", "gain", "rotary", "key_prompt", "mlp", "value_mlp"}
STATEFUL = ("adam", "muon", "momentum")


@cache
def combinations() -> tuple[tuple[str, str, str, str], ...]:
    """(attention, head, loss, optimizer), in an order that mixes them."""
    known = {id(LOSSES.find(name)): name for name in MARGIN_LOSSES}
    # a loss that is not defined for all outputs needs problems of its own, and has a test of its own
    everywhere = [name for name in LOSSES.names() if LOSSES.find(name).defined_everywhere]
    losses = sorted({known.get(id(LOSSES.find(name)), name) for name in everywhere})
    pairs = [(head, loss) for head, loss in product(HEADS, losses) if loss != "cross_entropy" or head in OF_CLASSES]
    # bilinear descent steps on K and Q alone, and log_gradient_descent has a fixed linear head; the steps of each are
    # followed in tests/optimizers
    names = [name for name in OPTIMIZERS.names() if name not in ("bilinear_descent", "log_gradient_descent")]
    every = [(a, *pair, o) for a, pair, o in product(ATTENTIONS.names(), pairs, names)]
    order = np.random.default_rng(15).permutation(len(every))
    return tuple(every[i] for i in order)


def cover() -> tuple[int, ...]:
    """A few cases in which every attention, head, loss and optimizer occurs, and SLOW ones in as few as possible."""
    missing, chosen = {(i, name) for combination in combinations() for i, name in enumerate(combination)}, []
    while missing:
        new = [len(missing & set(enumerate(x))) - 0.1 * len(SLOW & set(x)) for x in combinations()]
        chosen.append(int(np.argmax(new)))
        missing -= set(enumerate(combinations()[chosen[-1]]))
    return tuple(chosen)


# --- one case


class Next(NamedTuple):
    """One step by definition."""

    parameters: Any
    tolerance: Any
    state: Any
    vanished: bool  # the slopes are zero for the library
    decided: frozenset[
        str
    ]  # all parameters, if some derivative exceeds all rounding errors; else those with such a one


def _drawn(rng: Any, *shape: int) -> Any:
    """Normal numbers that float32 represents."""
    return rng.normal(size=shape).astype(np.float32).astype(float) if shape else float(np.float32(rng.normal()))


def random_problem(rng: Any, attention: str, head: str, classes: bool) -> attsvm.Problem:
    """A batch of problems of one small shape: any of one token, one sequence, several queries, ragged, with keys."""
    n, d = (int(x) for x in rng.integers(1, 4, size=2))
    T = int(rng.choice([1, 2, 3, 4], p=[0.1, 0.3, 0.3, 0.3]))
    has_queries = ATTENTIONS.find(attention).takes_queries
    queries = int(rng.integers(1, 3)) if has_queries and rng.integers(3) == 0 else None
    per_query = (PROBLEMS, n) if queries is None else (PROBLEMS, n, queries)
    key_dim = int(rng.integers(1, 4)) if rng.integers(4) == 0 and attention != "rotary" else None
    optional: dict[str, Any] = {}
    if key_dim:
        optional["keys"] = _drawn(rng, PROBLEMS, n, T, key_dim)
    if rng.integers(3) == 0:
        mask = rng.random((*per_query, T)) < 0.7
        mask[..., 0] = True
        optional["mask"] = mask
    if queries and rng.integers(2):
        active = rng.random(per_query) < 0.7
        active[..., 0, 0] = True
        optional["query_mask"] = active
    labels = rng.integers(CLASSES, size=per_query) if classes else rng.choice([-1.0, 1.0], size=per_query)
    if classes:
        labels[..., 0] = CLASSES - 1
    if classes or head != "function":
        optional["head"] = _drawn(rng, PROBLEMS, CLASSES, d) if classes else _drawn(rng, PROBLEMS, d)
    z = _drawn(rng, *per_query, int(rng.integers(1, 4))) if has_queries else None
    arrays = {"tokens": _drawn(rng, PROBLEMS, n, T, d), "labels": labels, "queries": z, **optional}
    problem = attsvm.Problem(**{name: x[list(LANES)] for name, x in arrays.items() if x is not None})
    if attention != "rotary":
        return problem
    return problem.with_rotations(_drawn(rng, int(rng.integers(1, 3))), query_positions=_drawn(rng, *per_query[1:]))


@dataclass
class Case:
    """One call of ``train``, and what the reference needs to make its steps."""

    problem: attsvm.Problem
    loss: str
    of_head: Any
    step: Any
    stateful: bool
    options: dict[str, Any]
    trained: tuple[str, ...]
    needs_value: bool
    eps: float
    tiny: float
    rng: Any

    def advance(self, start: Any, steps: int) -> attsvm.Run:
        """Some steps of the library, from parameters or a run."""
        return attsvm.train(self.problem, init=start, steps=steps, record=1, **self.options)

    def next(self, trial: int, earlier: Any, parameters: Any, state: Any, number: int) -> Next:
        """One step by definition, after the step that led from the ``earlier`` parameters to these."""
        one = self.problem[trial]
        given = {name: np.asarray(x, float) for name, x in parameters.items()}
        exact, condition = oracle.gradient(one, given, self.of_head, self.loss)
        error = relative_error(self.eps, condition)
        arrays, logs, members = {}, {}, {}
        # of the head, and of the attention: each has a scale, far below which derivatives are zero
        steepest = dict.fromkeys([False, True], mpmath.mpf(0))
        for name, (g, _) in exact.items():
            steepest[name in OF_ATTENTION] = max([steepest[name in OF_ATTENTION], *map(abs, np.ravel(g))])
        noises = {}
        for name in self.trained:
            g, size = exact[name]
            noise = size * error + steepest[name in OF_ATTENTION] * mpmath.mpf(self.tiny * 1e8)
            largest = max((abs(x) for x in np.ravel(g)), default=0)
            noises[name] = max([mpmath.mpf(0), *np.ravel(noise)])
            logs[name] = mpmath.log(largest) if largest else mpmath.mpf(0)
            unit = largest or 1
            center, spread = np.array(g / unit, dtype=float), np.minimum(np.array(noise / unit, dtype=float), 1e3)
            arrays[name] = self._members(center, spread)
            members[name] = self._members(given[name], 4 * self.eps * (np.abs(given[name]) + np.abs(earlier[name])))
        value = np.ones(7)
        if self.needs_value:
            loss = float(oracle.mean_loss(one, given, self.of_head, self.loss))
            value = self._members(np.array(loss), np.array(float(error) * max(abs(loss), 1.0)))
        with np.errstate(over="ignore", invalid="ignore"):
            after, state = self.step(members, reference.Slopes(arrays, logs), value, state, number)
            expected = {name: x[0] for name, x in after.items()}
            tolerance = {
                name: 8 * np.abs(x[1:] - x[0]).max(axis=0) + 64 * self.eps * (np.abs(x[0]) + np.abs(x[0] - given[name]))
                for name, x in after.items()
            }
        # a factor 1e8 above the smallest float, which the library's rounding may lose
        smallest = mpmath.log(self.tiny) + 18
        vanished = all(not np.any(x[0]) or logs[name] < smallest for name, x in arrays.items())
        decided = {name for name, noise in noises.items() if noise == 0 or np.abs(exact[name][0]).max() > noise}
        roughest = max(noises.values())
        all_are = roughest == 0 or max(steepest.values()) > roughest
        return Next(expected, tolerance, state, vanished, frozenset(self.trained if all_are else decided))

    def _members(self, center: Any, spread: Any) -> Any:
        """The center, and copies that differ by the spread in either direction, with three patterns of signs.

        A perturbation along the gradient leaves a normalized step as it is. Patterns of independent signs may all be
        such (with two entries in one case of four), so the third is the first with every other sign changed.
        """
        signs = self.rng.choice([-1.0, 1.0], size=(2, *np.shape(center)))
        every_other = np.reshape((-1.0) ** np.arange(np.size(center)), np.shape(center))
        signs = np.stack([*signs, signs[0] * every_other])
        return np.stack([center, *(center + s * sign * spread for sign in signs for s in (1, -1))])


class Trainings(Campaign):
    """The campaign."""

    name = "trainings"
    unit = "trainings"
    full = 2000
    small = cover()

    def check(self, case: int) -> Outcome:
        """One combination, with a batch of problems."""
        mpmath.mp.dps = DIGITS
        combination = combinations()[case % len(combinations())]
        if combination[3] not in RULES or combination[2] not in (*MARGIN_LOSSES, "cross_entropy"):
            return Outcome(0, counts={"without a formula": 1})
        if case % 50 == 49:
            # each compiled program takes entries of the process's table of memory maps, whose size is limited
            program.cache_clear()
            jax.clear_caches()
        try:
            return _checked(case, combination)
        except Exception as error:  # a failure of the library, whatever it is
            return Outcome(PROBLEMS, (f"{combination}: {type(error).__name__}: {str(error)[:300]}",))


def _drawn_case(case: int, combination: tuple[str, str, str, str]) -> tuple[Case, dict[str, Any]]:
    attention, head, loss, optimizer = combination
    rng = np.random.default_rng([15, case])
    classes = loss == "cross_entropy"
    problem = random_problem(rng, attention, head, classes)
    built, of_head = HEADS[head](rng, problem.dim, classes)
    eta = float(np.float32(10 ** rng.uniform(-2, -0.5)))
    options, step = RULES[optimizer](rng, eta)
    rank = int(rng.integers(1, 4)) if ATTENTIONS.find(attention).takes_rank else None
    train_head = bool(rng.integers(2)) and not (optimizer == "gradient_descent" and loss == "exponential")
    dtype = "float32" if rng.integers(8) == 0 else "float64"
    if head == "mlp" and built.activation == "gelu":
        of_head = partial(of_head, least=mpmath.mpf(float(np.finfo(dtype).tiny) * 1e18))
    layer = ATTENTIONS.find(attention).of(problem, rank)
    shapes = layer.shapes(problem)
    # from near zero to the far limit
    scales = 10.0 ** np.where(rng.random(PROBLEMS) < 0.3, rng.uniform(3, 6, PROBLEMS), rng.uniform(-1, 1, PROBLEMS))
    start = {name: _drawn(rng, PROBLEMS, *shape) for name, shape in shapes.items()}
    start = {name: reference.by_member(scales ** (1 / len(shapes)), x) for name, x in start.items()}
    start = {name: np.float32(x).astype(float)[list(LANES)] for name, x in start.items()}
    if train_head:
        start |= {name: np.array(x) for name, x in built.initial(problem).items()}
    for x in start.values():
        nudge = NUDGE * np.abs(x[0]).max() * rng.choice([-1.0, 1.0], size=x[0].shape)
        x[1:3] += np.stack([nudge, -nudge])
    fixed = tuple(str(name) for name in rng.permutation(list(start))[1:] if rng.integers(6) == 0)
    # what is left of these alone is no attention of one matrix
    fixed = tuple(name for name in fixed if (attention, name) not in (("rotary", "Q"), ("gain", "W")))
    made = Case(
        problem,
        loss,
        of_head,
        step,
        optimizer in STATEFUL or (optimizer == "normalized" and options["inner"].name in STATEFUL),
        {
            "attention": attention,
            "rank": rank,
            "loss": loss,
            "head": built,
            "train_head": train_head,
            "fixed": fixed,
            "optimizer": OPTIMIZERS.find(optimizer)(**options),
            "dtype": dtype,
        },
        tuple(name for name in start if name not in fixed),
        optimizer == "polyak",
        float(np.finfo(dtype).eps),
        float(np.finfo(dtype).tiny),
        rng,
    )
    return made, start


def _checked(case: int, combination: tuple[str, str, str, str]) -> Outcome:
    made, start = _drawn_case(case, combination)
    counts = Counter[str]()
    run = made.advance(start, 0)
    failures, run = _single_steps(made, run, counts)
    counts.update(run.status[list(CHECKED)].tolist())
    failures += [f"{name} is not finite at the end" for name, x in run.parameters.items() if not np.isfinite(x).all()]
    if run.status[0] == "finished" and made.options["dtype"] == "float64":
        failures += _whole_training(made, start, run, counts)
    what = f"{'/'.join(combination)} {made.options['optimizer']!r} {made.options['dtype']}"
    return Outcome(PROBLEMS, tuple(f"{what}: {line}" for line in failures), dict(counts))


def _single_steps(made: Case, run: attsvm.Run, counts: Counter[str]) -> tuple[list[str], attsvm.Run]:
    """Steps of the library against those by definition from the same weights; the run after all steps."""
    failures: list[str] = []
    # sums of gradients are not recorded, so only the first steps of optimizers that have some are checked one by one
    later = [] if made.stateful else made.rng.choice(np.arange(FIRST, STEPS), LATER, replace=False).tolist()
    states: dict[int, Any] = dict.fromkeys(CHECKED)
    unknown: set[int] = set()  # the problems whose sums of gradients hold rounding errors
    earlier, done = run, 0
    for number in sorted({*range(FIRST), *later}):
        if number > done:
            earlier = made.advance(run, number - done - 1)
            run = made.advance(earlier, 1)
        before, run, done = run, made.advance(run, 1), number + 1
        for i in CHECKED:
            if before.status[i] not in ("finished", "interrupted") or i in unknown:
                continue
            last, parameters = ({name: x[i] for name, x in of.parameters.items()} for of in (earlier, before))
            found = made.next(i, last, parameters, states[i], number)
            states[i] = found.state
            if run.status[i] == "stalled" and found.vanished:
                continue
            if len(found.decided) < len(made.trained):
                counts["steps that rounding decides in part"] += 1
                unknown |= {i} if made.stateful else set()
            counts["steps"] += 1
            after = {name: run.parameters[name][i] for name in found.decided}
            failures += [
                f"problem {i}, step {number}, {line}"
                for line in _compared(after, found.parameters, found.tolerance, counts)
            ]
        earlier = before
    return failures[:3], made.advance(run, STEPS - done)


def _compared(after: Any, expected: Any, tolerance: Any, counts: Counter[str]) -> list[str]:
    lines = []
    for name, x in after.items():
        if not np.isfinite(expected[name]).all() or not np.isfinite(tolerance[name]).all():
            counts["beyond floats"] += 1
            continue
        off = np.abs(x - expected[name]) - tolerance[name]
        if (off > 0).any():
            at = np.unravel_index(np.argmax(off), np.shape(off))
            one = f"expected {float(expected[name][at])!r}, got {float(x[at])!r}, tolerance {tolerance[name][at]:.1e}"
            lines.append(f"{name}{[int(j) for j in at]}: {one}")
    return lines


def _whole_training(made: Case, start: dict[str, Any], run: attsvm.Run, counts: Counter[str]) -> list[str]:
    """The first problem trained by the reference alone, against the run.

    Errors are relative to the largest weight of each parameter until then. Errors of the steps grow until the end as
    the nudges do, as long as they are small: what they would grow to above ``LINEAR`` is not known, nor compared.
    """
    one = {name: start[name][0] for name in made.trained}
    fixed = {name: x[0] for name, x in run.parameters.items() if name not in one}
    sizes = {name: np.abs(x).max() for name, x in one.items()}
    state, error = None, 0.0
    for number in range(STEPS):
        found = made.next(0, one | fixed, one | fixed, state, number)
        one, tolerance, state = found[:3]
        sizes = {name: max(size, np.abs(one[name]).max()) for name, size in sizes.items()}
        error += max(tolerance[name].max() / size for name, size in sizes.items())
        if not error <= 1e-4 or len(found.decided) < len(made.trained):
            counts["trainings across a jump"] += 1
            return []
    ends = {name: run.parameters[name] for name in one}
    apart = max(np.abs(x[1:3] - x[0]).max() / sizes[name] for name, x in ends.items())
    limit = 10 * max(1.0, apart / NUDGE) * error
    if limit > LINEAR:
        counts["trainings that are unstable"] += 1
        return []
    counts["whole trainings"] += 1
    off = max(np.abs(x[0] - one[name]).max() / sizes[name] for name, x in ends.items())
    return [f"after {STEPS} steps off by {off:.1e}, tolerance {limit:.1e}"] if off > limit else []


CAMPAIGN = Trainings()
