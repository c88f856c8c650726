"""The main function of training, which returns a run for a problem and an optimiser."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optax

from attsvm._utils.progress import Callback, reports
from attsvm.errors import ProblemError
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.problem import Problem, check_is_problem
from attsvm.training.attention.registry import parse_attention
from attsvm.training.collect import run_of, run_steps
from attsvm.training.maps.registry import parse_map
from attsvm.training.objective import Objective
from attsvm.training.range import check_range
from attsvm.training.resumed import parse_fixed, parse_head_of, parse_map_name, parse_train_head, rank_of, setting_of
from attsvm.training.run import Run
from attsvm.training.setup import Setup
from attsvm.training.stopping import Stopping


@reports("training")
def train(
    problem: Problem,
    *,
    attention: str | None = None,
    optimizer: str | optax.GradientTransformation | None = None,
    learning_rate: float | Callable[[Any], Any] | None = None,
    steps: int = 20_000,
    loss: str | OutputLoss | Callable[[Any], Any] | None = None,
    head: str | Head | None = None,
    train_head: bool | None = None,
    fixed: Sequence[str] | None = None,
    map: str | None = None,
    rank: int | None = None,
    penalty: float | None = None,
    batch_size: int | None = None,
    stop: Stopping | None = None,
    init: Any = None,
    seed: int | None = None,
    record: int | Sequence[int] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Run:
    """Train an attention layer, by default with a softmax, until the direction of its weights converges.

    Minimises (1/N) Σ ℓ(y f) over the N unmasked queries, f = h(Σ_t softmax(s)_t x_t). The gradient stays accurate, in
    relative terms, even if the softmax is saturated, and normalised steps continue where the gradient itself
    underflows.

    Parameters
    ----------
    problem : Problem
        With labels, and with a prediction head unless ``head`` is given. The problems of a batch are trained together.
        With ``num_heads``, f is the sum over the attention heads, each with its own parameters: W (*batch, H, d_k,
        d_q). With ``key_groups``, the attention heads of a group share K (*batch, g, d_k, m).
    attention : {"combined", "factored", "rotary", "gain", "prompt", "key_prompt"}, optional
        s = k'Wz, k'KQ'z, the same with rotated K and Q, k' diag(g) Wz, k'p or k'Wp. By default combined for a problem
        with queries, factored with ``key_groups``, else a prompt.
    optimizer : optax.GradientTransformation or str, optional
        An optimiser from :mod:`attsvm.optimizers`, by name or as an object, an import path ``package.module:name``, or
        any optimiser from optax. By default normalised gradient descent with learning rate 0.1; for factored attention,
        with one norm over both factors, and step k has length 0.03/(1 + k/4000) times the norm of (K, Q); the same
        holds for (g, W).
    learning_rate : float or callable, optional
        The learning rate, a number or a function of the step, for an optimiser given by name, or for normalised
        gradient descent if ``optimizer`` is not given. By default that of the optimiser.
    steps : int
        Number of updates, in addition to those of a resumed run.
    loss : str, Loss or callable, optional
        "logistic", the default, "exponential", "linear", "cross_entropy" (class labels) or another name of
        :mod:`attsvm.losses`, an import path ``package.module:name``, a :class:`attsvm.losses.Loss`, or a function
        m ↦ ℓ(m) of the margin, written in JAX, which is differentiated automatically.
    head : Head or str, optional
        A prediction head from :mod:`attsvm.heads`, by name, as an object, or by an import path. By default the linear
        head of the problem.
    train_head : bool, optional
        Train the prediction head together with the attention, starting from the given parameters. By default not.
    fixed : sequence of str, optional
        Names of parameters that keep their initial values: ``("W",)`` trains only the prompt of "key_prompt" attention.
        By default none; a resumed run keeps its own, which cannot be changed.
    map : {"softmax", "sparsemax", "entmax1.5", "sigmoid"} or str, optional
        The map from logits to attention: one of these, another name in :data:`attsvm.training.MAPS`, or an import path
        ``package.module:name``. By default softmax; a resumed run keeps its map, which cannot be changed. Sparsemax is
        one-hot from a margin of 1 on, and 1.5-entmax from 2 on. There the gradient is zero, so training stops unless
        there is a ``penalty``. With the sigmoid, the output is Σ_t σ(s_t) x_t.
    rank : int, optional
        Number of columns of K and Q, or of W in "key_prompt"; d_k by default.
    penalty : float, optional
        Adds penalty · ‖θ‖² to the loss, where θ are all trained parameters. By default 0.
    batch_size : int, optional
        Number of sequences in a step, drawn without replacement, shuffled again in each epoch, and the same for all
        trials. An incomplete last batch is left out. By default all sequences.
    stop : Stopping, optional
        When a trial stops before it has made all steps: ``Stopping(margin_tol=1e-3)`` stops it once its margin no
        longer grows, ``Stopping(gradient_tol=1e-6)`` once its gradient is small. By default neither.
    init : array, (K, Q), dict of parameters, or Run, optional
        The initial parameters; axes in front of the problem's batch axes are trials. A Run is resumed, with its history
        and the state of its optimiser. It keeps its loss, head, ``train_head``, ``rank``, ``penalty``, ``batch_size``,
        ``seed`` and ``dtype``, unless others are given. By default, W and p start at zero. Parameters that are
        multiplied with each other (K and Q, W of a gain, W and p in "key_prompt") start with entries N(0, 1/d), drawn
        with ``seed``. A gain starts at 1.
    seed : int, optional
        Seed of the initial parameters and of the mini-batches. By default 0.
    record : int or sequence of int, optional
        The number of log-spaced steps that the history records, or the steps themselves. By default 50.
    dtype : {"float64", "float32"}, optional
        By default "float64".
    device : str, optional
        "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default JAX's default device, a GPU if
        there is one.
    callback : callable, optional
        Called with a :class:`~attsvm.Progress` between stretches of about a quarter of a second. Training stops
        when it returns True.
    progress : bool
        Show the progress: a bar in a terminal or a notebook, plain lines on stderr elsewhere.

    Returns
    -------
    Run
        After Ctrl-C, or if the callback stopped it, the run so far, with status ``interrupted``.

    Raises
    ------
    ProblemError
        If an argument does not fit the problem or another argument, or the device does not exist.
    MemoryError
        If there is not enough memory. The message says how many trials would fit.

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
        raise ProblemError("problem: expected labels, but it has none")
    resumed = init if isinstance(init, Run) else None
    penalty = setting_of("penalty", penalty, resumed, 0.0)
    dtype = setting_of("dtype", dtype, resumed, "float64")
    Setup.check_numbers(steps, dtype, penalty, 0 if seed is None else seed)
    map_name = parse_map_name(map, resumed)
    kind = resumed.attention if resumed is not None and attention is None else attention
    layer, names = parse_attention(kind, problem, rank_of(rank, resumed, kind)), parse_fixed(fixed, resumed)
    loss_name, loss = Setup.parse_loss(loss, resumed, problem.num_classes)
    train_head = parse_train_head(train_head, resumed, layer.shapes(problem).keys())
    objective, of_head = Objective.of(
        problem,
        layer,
        parse_head_of(head, resumed),
        loss,
        train_head=train_head,
        penalized=penalty > 0,
        fixed=names,
        map=parse_map(map_name),
    )
    check_range(problem, np.dtype(dtype))
    setup = Setup(
        problem,
        objective,
        of_head,
        steps=steps,
        optimizer=optimizer,
        learning_rate=learning_rate,
        loss_name=loss_name,
        init=init,
        resumed=resumed,
        seed=seed,
        record=record,
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        stop=stop,
        penalty=penalty,
        train_head=train_head,
        fixed=names,
        map_name=map_name,
    )
    return run_of(setup, run_steps(setup, callback), names)
