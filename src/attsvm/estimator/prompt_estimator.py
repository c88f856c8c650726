"""What the estimators that are prompt attention share: the attention, the selection, and its Att-SVM."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attsvm.datasets import Sequences
from attsvm.estimator.base import SequenceEstimator
from attsvm.estimator.inputs import GivenSequences
from attsvm.estimator.margins import SAMPLE, MarginReport
from attsvm.estimator.network import token_products
from attsvm.estimator.prompt import PromptModel, PromptOutput, forward


@dataclass(eq=False, repr=False)
class PromptEstimator(SequenceEstimator):
    """An estimator whose network is prompt attention."""

    norm: str | None = field(default=None, kw_only=True)

    @property
    def path_(self) -> dict[int, PromptModel]:
        """Prompt, head and intercept after 0, 1, 2, 4, 8, … steps of the last fit, up to those that were kept."""
        network, coordinates, kept = self._network(), self._state.coordinates, self.kept_step_
        earlier = {
            steps: self._published(network.model(found, coordinates))
            for steps, found in self._path.items()
            if steps < kept
        }
        return {**earlier, kept: self._model}

    def attention(self, X: Any) -> Any:
        """The attention of each token; it sums to 1 in each sequence.

        Returns
        -------
        list of n arrays (T_i,); ndarray (n, T) for arrays; (N,) for ``Sequences``, like its ids

        See Also
        --------
        attsvm.AttentionClassifier.selected
        """
        given, output = self._forward(X)
        return given.restore(output.attention)

    def selected(self, X: Any) -> Any:
        """Position of the token with the largest attention in each sequence, shape (n,); the first one on ties.

        See Also
        --------
        attsvm.AttentionClassifier.attention
        """
        given, output = self._forward(X)
        return given.labelled(output.selected)

    def margin_report(self, X: Any = None, *, slack: float | None = None, max_sequences: int = SAMPLE) -> MarginReport:
        """The Att-SVM of the tokens that the prompt selects, and how close the prompt is to it.

        Parameters
        ----------
        X
            As for :meth:`fit`; by default the training sequences, at most 200, that a fit keeps with ``keep_sample``.
        slack : float, optional
            C of the soft margin. By default the hard margin is solved, and the soft one with C = 1 if that is
            infeasible.
        max_sequences : int
            If there are more sequences, this many are drawn with ``random_state``.

        Returns
        -------
        MarginReport

        Raises
        ------
        ProblemError
            If there are no sequences.

        See Also
        --------
        attsvm.estimator.MarginReport

        Examples
        --------
        >>> import attsvm
        >>> bags = attsvm.datasets.digit_bags(150, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> classifier.margin_report(bags.train).separable
        True
        """
        return self._margins("p", ..., X, slack, max_sequences)

    def _published(self, model: PromptModel) -> PromptModel:
        """The model in the unit of its outputs."""
        return model

    def _publish(self, model: PromptModel) -> None:
        model = self._published(model)
        self.prompt_, self.head_, self.intercept_ = model.prompt, model.head, model.intercept

    def _output(self, sequences: Sequences) -> np.ndarray:
        return forward(self._model, sequences).decision

    def _token_outputs(self, sequences: Sequences) -> np.ndarray:
        return np.asarray(token_products(self.head_.T, sequences) + self.intercept_)

    def _token_parts(self, sequences: Sequences) -> np.ndarray:
        return np.asarray(forward(self._model, sequences).attention[:, None] * self._token_outputs(sequences))

    @property
    def _model(self) -> PromptModel:
        return PromptModel(self.prompt_, self.head_, self.intercept_)

    def _forward(self, X: Any) -> tuple[GivenSequences, PromptOutput]:
        given = self._read(X)
        return given, forward(self._model, self._mapped(given))
