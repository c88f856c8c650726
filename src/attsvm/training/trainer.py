"""The main function of training, which returns a run for a problem and an optimizer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import optax

from attsvm._utils.checks import check_flag
from attsvm._utils.jax_devices import find_device, on_device
from attsvm._utils.progress import Callback, reports
from attsvm.errors import ProblemError
from attsvm.heads import Head, Linear, parse_head
from attsvm.losses import OutputLoss, parse_loss
from attsvm.optimizers import parse_optimizer, rule_of
from attsvm.optimizers.unit_steps import Schedule
from attsvm.problem import Problem, check_is_problem
from attsvm.training.attention import parse_attention
from attsvm.training.attention_heads import heads_of
from attsvm.training.collect import collect
from attsvm.training.excess import check_excess
from attsvm.training.memory import enough_memory
from attsvm.training.range import check_range
from attsvm.training.run import Run, optimizer_of
from attsvm.training.session import Session
from attsvm.training.setup import (
    Setup,
    check_numbers,
    described_start,
    initial_exponent,
    make_objective,
    margin_plateau,
    mini_batches,
    observed_steps,
    parse_fixed,
    parse_stop,
    record_steps,
    reduced_problem,
    starting_point,
)
from attsvm.training.stopping import Stopping


@reports("training")
def train(
    problem: Problem,
    *,
    attention: str | None = None,
    optimizer: str | optax.GradientTransformation | None = None,
    learning_rate: float | Schedule | None = None,
    steps: int = 20_000,
    loss: str | OutputLoss | Callable[[Any], Any] = "logistic",
    head: str | Head | None = None,
    train_head: bool = False,
    fixed: Sequence[str] | None = None,
    rank: int | None = None,
    penalty: float = 0.0,
    batch_size: int | None = None,
    stop: Stopping | None = None,
    init: Any = None,
    seed: int = 0,
    record: int | Sequence[int] | None = None,
    dtype: str = "float64",
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Run:
    """Train a softmax attention layer until the direction of its weights converges.

    Minimises (1/N) Σ ℓ(y f) over the N unmasked queries, f = h(Σ_t softmax(s)_t x_t). The gradient keeps its relative
    accuracy however saturated the softmax is, and normalized steps continue where the gradient itself underflows.

    Parameters
    ----------
    problem : Problem
        With labels, and a head unless ``head`` is given. The problems of a batch are trained together. With
        ``num_heads``, f is the sum over the attention heads, each with parameters of its own: W (*batch, H, d_k, d_q).
        With ``key_groups``, the heads of a group share K (*batch, g, d_k, m).
    attention : {"combined", "factored", "prompt", "key_prompt"}, optional
        s = k'Wz, k'KQ'z, k'p or k'Wp. By default combined for a problem with queries, factored with ``key_groups``,
        else a prompt.
    optimizer : optax.GradientTransformation or str, optional
        One of :mod:`attsvm.optimizers`, by name or as an object, an import path ``package.module:name``, or any
        optimizer of optax. By default normalized gradient descent with learning rate 0.1; for factored attention with
        one norm over both factors and step k as long as 0.03/(1 + k/4000) times the norm of (K, Q).
    learning_rate : float or callable, optional
        That of the optimizer with this name, or of normalized gradient descent if ``optimizer`` is not given: a number,
        or a function of the step. By default the optimizer's own.
    steps : int
        Updates to make, in addition to those of a run that is resumed.
    loss : str, Loss or callable
        "logistic", "exponential", "linear", "cross_entropy" (class labels) or another name of
        :mod:`attsvm.losses`, an import path ``package.module:name``, a :class:`attsvm.losses.Loss`, or a function
        m ↦ ℓ(m) of the margin in JAX, which is differentiated as it is written.
    head : Head or str, optional
        One of :mod:`attsvm.heads`, by name, as an object, or by an import path. The problem's linear head by default.
    train_head : bool
        Train the head together with the attention, from its given parameters.
    fixed : sequence of str, optional
        Names of parameters that keep their initial values: ``("W",)`` trains the prompt of "key_prompt" attention
        alone. By default none, or those of a run that is resumed, which cannot be changed.
    rank : int, optional
        Columns of K and Q, or of W in "key_prompt"; d_k by default.
    penalty : float
        Adds penalty · ‖θ‖², θ all trained parameters.
    batch_size : int, optional
        Sequences in a step, drawn without replacement and shuffled anew in each epoch, the same for all trials. A last
        batch that would be too small is left out. By default all sequences.
    stop : Stopping, optional
        When a trial stops before it has made all steps: ``Stopping(margin_tol=1e-3)`` once its margin no longer grows,
        ``Stopping(gradient_tol=1e-6)`` once its gradient is small. By default neither.
    init : array, (K, Q), dict of parameters, or Run, optional
        The initial parameters; leading axes in front of the problem's batch are trials. A Run is resumed: its history
        and the state of its optimizer are continued. By default W and p start at zero, and parameters that are
        multiplied with each other (K and Q, or W and p in "key_prompt") with entries N(0, 1/d) drawn with ``seed``.
    seed : int
        Seed of the initial parameters and of the mini-batches. Pass the seed of a run to resume it.
    record : int or sequence of int, optional
        How many log-spaced steps the history holds, or which steps; 50 by default.
    dtype : {"float64", "float32"}
    device : str, optional
        "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default that of JAX, a GPU if there is
        one.
    callback : callable, optional
        Called with a :class:`~attsvm.Progress` between stretches of about a quarter of a second. Training stops
        when it returns True.
    progress : bool
        Show the progress: a bar in a terminal or a notebook, plain lines on stderr elsewhere.

    Returns
    -------
    Run
        After Ctrl-C, or when the callback stopped it, the run so far, with status ``interrupted``.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem or another argument, or there is no such device.
    MemoryError
        If memory does not suffice. The message says how many trials would fit.

    See Also
    --------
    attsvm.Run : The result.
    attsvm.predict_direction : The direction that theory predicts.
    attsvm.solve_svm : The Att-SVM.
    attsvm.Stopping : Tolerances.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem)
    >>> solution = attsvm.predict_direction(problem, run).solution
    >>> bool(attsvm.direction_error(run.weights, solution.direction) < 0.01)
    True
    """
    check_is_problem(problem)
    if problem.labels is None:
        raise ProblemError("problem: expected labels, got none")
    check_numbers(steps, dtype, penalty, seed)
    check_flag("train_head", train_head)
    home = find_device(device)
    stop = parse_stop(stop)
    batches = mini_batches(batch_size, stop, problem)
    resumed = init if isinstance(init, Run) else None
    kind = resumed.attention if resumed is not None and attention is None else attention
    layer = parse_attention(kind, problem, rank)
    names = parse_fixed(fixed, resumed)
    parsed_head, parsed_loss = parse_head(Linear() if head is None else head), parse_loss(loss, problem.num_classes)
    objective, of_head = make_objective(
        problem, layer, parsed_head, parsed_loss, train_head=train_head, penalized=penalty > 0, fixed=names
    )
    check_range(problem, np.dtype(dtype))
    values, batch = starting_point(problem, layer, of_head, init, seed, train_head=train_head)
    trained = {name: x for name, x in values.items() if name not in names}
    constant = {name: x for name, x in values.items() if name in names}
    reduced = reduced_problem(
        objective, problem, {name: x.reshape(batch + x.shape[1:]) for name, x in constant.items()}
    )
    if optimizer is None and learning_rate is None:
        trains = layer if reduced is None else reduced.attention
        optimizer = trains.default_optimizer() if resumed is None else optimizer_of(resumed)
    elif optimizer is None and resumed is not None:
        raise ProblemError("learning_rate: expected it with an optimizer, because a run is resumed, got it alone")
    optimizer = parse_optimizer(optimizer, **({} if learning_rate is None else {"learning_rate": learning_rate}))
    objective = replace(objective, heads=heads_of(problem, rule_of(optimizer)))
    if rule_of(optimizer).reads_excess:
        check_excess(objective)
    start = 0 if resumed is None else max(resumed.steps, int(resumed.history["steps"].max(initial=0)))
    recorded = record_steps(record, start, start + int(steps))
    marks = observed_steps(recorded, start, start + int(steps))
    plateau = margin_plateau(stop, optimizer, reduced)
    log_scale = 0.0 if resumed is None else resumed.log_scale
    setup = Setup(
        problem,
        objective,
        optimizer,
        of_head,
        trained,
        initial_exponent(log_scale, len(trained) - len(objective.head_names), batch),
        batch,
        np.dtype(dtype),
        batches,
        seed,
        loss if isinstance(loss, str) else "custom",
        described_start(init, layer.shapes(problem)),
        constant,
        names,
        reduced,
        penalty,
        stop,
    )
    with jax.enable_x64(True), on_device(home):
        memory = partial(enough_memory, home, setup)
        with memory():
            session = Session(setup)
            if resumed is not None:
                session.resume(resumed)
        interrupted = session.advance(start, marks, callback, plateau, memory)
        with memory():
            return collect(session, setup, resumed, recorded, interrupted)
