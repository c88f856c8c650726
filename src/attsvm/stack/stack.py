"""Several attention layers that are trained together."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attsvm._utils.checks import check_integer, check_kind
from attsvm._utils.progress import Callback, reports
from attsvm._utils.shapes import Bool
from attsvm.errors import ProblemError
from attsvm.losses import OutputLoss
from attsvm.norms import Norm
from attsvm.results import plain
from attsvm.stack.layout import StackLayout
from attsvm.stack.path import Layer, layers_of, smallest_margin
from attsvm.stack.prediction import predictions
from attsvm.stack.run import StackRun
from attsvm.stack.training import train_stack
from attsvm.svm import Solution, solve_svm
from attsvm.theory import Prediction, norm_for


class Stack(StackLayout):
    """L attention layers in a row: L − 1 layers of self-attention, and one that pools for the query of the problem.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    A self-attention layer replaces each token x_t by x_t + Σ_h V_h Σ_s softmax(X W_h x_t)_s x_s. The last layer is that
    of :func:`attsvm.train`: f = v'X'softmax(X W z) of the tokens that it sees.

    Trained together with one norm over the gradients of all layers, each layer was measured to converge to the Att-SVM
    of its own tokens, relaxed off the selected path: a margin of 1 at the positions that reach the output, a margin
    of 0 at the others. All layers reach the same margin. :meth:`solve` computes this limit; it is not proved.

    Parameters
    ----------
    problem : Problem
        With labels, queries and a linear head, no keys, and a mask of tokens only. With ``num_heads``, each layer has
        this number of attention heads.
    layers : int
        L, at least 2.
    residual : bool
        Whether x_t is added.
    causal : bool
        Whether positions attend to themselves and those before them only. The query of the last layer attends to all.
    values : array, shape ([H,] L − 1, d, d), optional
        The value matrices V of the self-attention layers, which are not trained. The identity by default; required
        with several attention heads, because heads with the same V do not learn to differ.

    Raises
    ------
    ProblemError
        If the problem lacks what a stack needs, or an argument does not fit it.

    See Also
    --------
    attsvm.train : Trains one layer.
    attsvm.StackRun : The result of training.

    Examples
    --------
    >>> import attsvm
    >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
    >>> run = stack.train(steps=5000)
    >>> [round(attsvm.correlation(run.weights[f"W{l}"], one.direction), 2) for l, one in enumerate(stack.solve(run))]
    [1.0, 1.0]
    """

    @reports("training")
    def train(
        self,
        *,
        attention: str | None = None,
        rank: int | None = None,
        optimizer: Any = None,
        learning_rate: Any = None,
        steps: int = 20_000,
        loss: str | OutputLoss | Callable[[Any], Any] | None = None,
        batch_size: int | None = None,
        init: Any = None,
        seed: int | None = None,
        record: int | Sequence[int] | None = None,
        dtype: str | None = None,
        device: str | None = None,
        callback: Callback | None = None,
        progress: bool = False,
    ) -> StackRun:
        """Train all layers together.

        The gradient of each layer keeps its relative accuracy however saturated the layers are.

        Parameters
        ----------
        attention : {"combined", "factored"}, optional
            Train W or (K, Q) of each layer: W by default, or what the run trained that is resumed.
        rank : int, optional
            Columns of K and Q; d by default.
        optimizer, learning_rate, loss, batch_size, seed, record, dtype, device, callback, progress
            As for :func:`attsvm.train`. By default normalised gradient descent with one norm over the gradients of all
            layers: on W with step k as long as 0.03(1 + k/1000), on factors with the relative steps of one layer.
        steps : int
        init : dict of arrays, or StackRun, optional
            The initial parameters: "W0" to "W<L−1>", or "K0", "Q0" to "K<L−1>", "Q<L−1>"; leading axes in front of the
            problem's batch are trials. Others have entries N(0, 1/d) drawn with ``seed``. A run is resumed: its history
            and the state of its optimiser are continued, with its loss, batches and seed unless others are given.

        Returns
        -------
        StackRun

        Raises
        ------
        ProblemError
            If an argument does not fit the problem or another argument.

        See Also
        --------
        attsvm.train : Trains one layer.

        Examples
        --------
        >>> import attsvm
        >>> attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=3).train(steps=10).status.value
        'finished'
        """
        resumed = init if isinstance(init, StackRun) else None
        if resumed is not None:
            self._check_own(resumed, "init")
        return train_stack(
            self,
            attention,
            rank,
            loss,
            resumed,
            callback,
            optimizer=optimizer,
            learning_rate=learning_rate,
            steps=steps,
            batch_size=batch_size,
            init=init,
            seed=seed,
            record=record,
            dtype=dtype,
            device=device,
        )

    def layer(self, run: StackRun, number: int) -> Layer:
        """One layer at the end of a run, as a problem that every solver and measure takes.

        Parameters
        ----------
        run : StackRun
        number : int
            From 0 to L − 1; layer 0 reads the tokens of the problem.

        Returns
        -------
        Layer
            With ``problem``, ``weights``, ``selected``, ``relaxed`` and ``probability``.

        Raises
        ------
        ProblemError
            If the run is not one of this stack, or there is no such layer.

        See Also
        --------
        attsvm.Stack.solve : The Att-SVM of all layers.

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> layer = stack.layer(stack.train(steps=1000), 1)
        >>> layer.problem.tokens.shape, layer.selected.shape, layer.relaxed is None
        ((2, 3, 6), (2, 3), True)
        """
        number = check_integer("number, which counts layers from 0", number, 0, self.layers - 1)
        return self._layers(run)[0][number]

    def path(self, run: StackRun) -> tuple[Bool[np.ndarray, "*batch n T"], ...]:
        """The selected path: which tokens of each layer reach the output.

        Those of the last layer are what its queries select. Those of a layer below are what the positions on the path
        select, and with the residual these positions themselves. Off the path, a position needs only a margin of 0.

        Returns
        -------
        tuple of L bool ndarrays, shape (*batch, n, T)
            Entry l are the tokens of layer l that reach the output, and the positions at which layer l − 1 selects for
            it.

        Raises
        ------
        ProblemError
            If the run is not one of this stack.

        See Also
        --------
        attsvm.Stack.saturation : Whether the layers have selected.

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> [int(on.sum()) for on in stack.path(stack.train(steps=5000))]
        [2, 2]
        """
        return tuple(self._layers(run)[1])

    def saturation(self, run: StackRun) -> np.ndarray | float:
        """The smallest softmax probability of the selected tokens on the path, over all layers and queries.

        Returns
        -------
        float or ndarray, shape (*batch_shape,)
            Near 1 where the run has selected a path. :meth:`solve` describes such runs only.

        Raises
        ------
        ProblemError
            If the run is not one of this stack.

        See Also
        --------
        attsvm.Stack.path

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> stack.saturation(stack.train(steps=5000)) > 0.999
        True
        """
        smallest = np.ones(run.batch_shape)
        for layer in self._layers(run)[0]:
            counted = layer.problem.canonical.active if layer.relaxed is None else ~layer.relaxed
            counted = counted.reshape(layer.probability.shape)
            own = np.where(counted & (layer.selected.any(axis=-1)), layer.probability, 1.0)
            smallest = np.minimum(smallest, own.min(axis=tuple(range(len(run.batch_shape), own.ndim))))
        found: np.ndarray | float = plain(smallest)
        return found

    def margins(self, run: StackRun) -> np.ndarray:
        """The smallest margin of each layer on the selected path.

        Returns
        -------
        ndarray, shape (*batch_shape, L), or (*batch_shape, L, H) with several attention heads
            Differences of logits under the weights of the run. They are measured to become equal under one norm over
            the gradients of all layers.

        Raises
        ------
        ProblemError
            If the run is not one of this stack.

        See Also
        --------
        attsvm.Stack.solve

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> first, last = stack.margins(stack.train(steps=5000))
        >>> bool(abs(first / last - 1) < 0.05)
        True
        """
        return np.stack([smallest_margin(layer) for layer in self._layers(run)[0]], axis=len(run.batch_shape))

    def solve(
        self, run: StackRun, norm: str | float | Norm | None = None, *, tol: float = 1e-8
    ) -> tuple[Solution, ...]:
        """Solve the hierarchical Att-SVM: the relaxed Att-SVM of each layer.

        Parameters
        ----------
        run : StackRun
            Its layers give the tokens, what is selected, and the path.
        norm : str, float or Norm, optional
            By default that of the limit of steps of the run's length.
        tol : float
            As for :func:`attsvm.solve_svm`.

        Returns
        -------
        tuple of L Solution
            Each with the certificate of :func:`attsvm.solve_svm`.

        Raises
        ------
        ProblemError
            If the run is not one of this stack, or the norm of its limit is not known and none is given.

        See Also
        --------
        attsvm.Stack.layer : The problem of a layer.

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> [one.status.value for one in stack.solve(stack.train(steps=5000))]
        ['optimal', 'optimal']
        """
        layers, _ = self._layers(run)
        of_one_layer: Any = run  # with the fields that both kinds of runs have
        used = norm_for(of_one_layer, norm, self.num_positions)
        return tuple(solve_svm(layer.problem, layer.selected, used, relaxed=layer.relaxed, tol=tol) for layer in layers)

    def predict(self, run: StackRun) -> tuple[Prediction, ...]:
        """Predict the direction of each layer, with its level of evidence.

        The direction is that of :meth:`solve`. The level of evidence, ``standing``, is never "proved": it is "measured"
        if runs with so many layers, and with steps of this kind and length, reached a mean margin ratio of at least
        0.95. It is "none" if the run has not selected a path.

        Returns
        -------
        tuple of L Prediction
            All have the hypotheses of the whole run.

        Raises
        ------
        ProblemError
            If the run is not one of this stack, or the norm of its limit is not known.

        See Also
        --------
        attsvm.predict_direction : For one layer.

        Examples
        --------
        >>> import attsvm
        >>> stack = attsvm.Stack(attsvm.datasets.random_problem(2, 3, 6, seed=0), layers=2)
        >>> [one.standing.value for one in stack.predict(stack.train(steps=5000))]
        ['measured', 'measured']
        """
        return predictions(self, run, self._layers(run)[0], self.solve(run), self.saturation(run))

    def _layers(self, run: StackRun) -> tuple[list[Layer], list[np.ndarray]]:
        check_kind("run", run, StackRun, "stack.train()")
        self._check_own(run, "run")
        return layers_of(self, run)

    def _check_own(self, run: StackRun, name: str) -> None:
        if run.data_hash != self.data_hash:
            raise ProblemError(f"{name}: expected a run of this stack, got one of another problem or of other layers")
