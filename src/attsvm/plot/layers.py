"""``stack_run.plot(stack)``: the paths through several layers."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import check_integer, check_kind
from attsvm._utils.shapes import Bool
from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import ink, one_axes
from attsvm.stack import Stack, StackRun


def stack_run(
    run: StackRun,
    stack: Stack | None,
    *,
    trial: int | Sequence[int],
    sequences: Sequence[int] | None,
    ax: Axes | None,
) -> Axes:
    """Draw it as :meth:`attsvm.StackRun.plot` says."""
    check_kind("stack", stack, Stack, "attsvm.Stack(problem, layers)")
    assert stack is not None
    index = tuple(np.atleast_1d(np.asarray(trial, dtype=int)).tolist())
    if len(index) != len(run.batch_shape):
        raise ProblemError(f"trial: expected an index for batch axes of shape {run.batch_shape}, got {trial!r}")
    index = tuple(check_integer("trial", i, 0, size - 1) for i, size in zip(index, run.batch_shape, strict=True))
    number = stack.problem.tokens.shape[-3]
    shown = [check_integer("sequences", i, 0, number - 1) for i in (range(number) if sequences is None else sequences)]
    layers = [stack.layer(run, number) for number in range(stack.layers)]

    def any_head(x: np.ndarray) -> np.ndarray:
        return x[index][shown] if stack.problem.num_heads is None else np.asarray(x[index].any(axis=0))[shown]

    axis = one_axes(ax)
    with style.unless_set():
        draw_layers(
            axis,
            np.stack([on[index][shown] for on in stack.path(run)]),
            np.stack([any_head(layer.selected) for layer in layers[:-1]]),
            any_head(layers[-1].selected),
            residual=stack.residual,
        )
    return axis


def draw_layers(
    axis: Axes,
    path: Bool[np.ndarray, "L n T"],
    reads: Bool[np.ndarray, "L-1 n T T"],
    last: Bool[np.ndarray, "n T"],
    *,
    residual: bool = True,
) -> None:
    """Draw the sequences beside each other, positions from left to right and layers upwards."""
    num_layers, n, T = path.shape
    for i in range(n):
        x = i * (T + 1) + np.arange(T)
        for level in range(num_layers):
            on = path[level, i]
            axis.plot(x[~on], np.full((~on).sum(), level), "o", color=ink(), alpha=0.25, markersize=3)
            axis.plot(x[on], np.full(on.sum(), level), "o", color=style.VERMILLION, markersize=4)
            for t in range(T) if level < num_layers - 1 else ():
                reached = path[level + 1, i, t]
                colour, alpha = (style.VERMILLION, 1.0) if reached else (ink(), 0.15)
                for s in {*([t] if residual else []), *np.flatnonzero(reads[level, i, t]).tolist()}:
                    axis.plot([x[s], x[t]], [level, level + 1], color=colour, alpha=alpha, linewidth=0.8)
        middle = x.mean()
        axis.plot([middle], [num_layers], "*", color=style.VERMILLION)
        for t in np.flatnonzero(last[i]).tolist():
            axis.plot([x[t], middle], [num_layers - 1, num_layers], color=style.VERMILLION, linewidth=0.8)
    axis.set_xticks([])
    axis.set_yticks(range(num_layers + 1), [*(f"tokens of layer {k}" for k in range(num_layers)), "query"])
