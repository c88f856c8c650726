"""A map of tokens: a scikit-learn transformer, or a PyTorch module, in a classifier or before it in a pipeline."""

import copy
import sys
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from attsvm.datasets.sequences import ROWS_AT_ONCE, Sequences
from attsvm.errors import ProblemError
from attsvm.estimator.inputs import Table, read


class TokenTransformer(TransformerMixin, BaseEstimator):
    """A transformer of scikit-learn for the tokens of sequences, as a step of a pipeline.

    ``StandardScaler()`` and others expect a matrix. This passes them the tokens of all sequences as one, and returns
    sequences in the form of the input. ``token_net=`` of a classifier does the same without a pipeline.

    Parameters
    ----------
    transformer : transformer or PyTorch module
        Fitted to the training tokens, without labels.
    bag : str, optional
        The column of a table that names the bag of each row; the classifier needs it, too.

    Attributes
    ----------
    transformer_ : transformer
        The fitted one.
    n_features_in_ : int
        d.

    See Also
    --------
    attsvm.AttentionClassifier
    attsvm.datasets.Sequences

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.estimator import TokenTransformer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> bags = attsvm.datasets.digit_bags(40, 20, seed=0)
    >>> pipeline = make_pipeline(TokenTransformer(StandardScaler()), attsvm.AttentionClassifier(random_state=0))
    >>> pipeline.fit(bags.train, bags.train_labels).predict(bags.test).shape
    (20,)
    """

    def __init__(self, transformer: Any, *, bag: str | None = None) -> None:
        self.transformer = transformer
        self.bag = bag

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the transformer to the tokens.

        Parameters
        ----------
        X : list of n arrays (T_i, d), :class:`attsvm.datasets.Sequences`, array (n, T, d), or table with ``bag``
            An array has no padding.
        y : ignored

        Returns
        -------
        self
            The estimator itself.

        Raises
        ------
        ProblemError
            If the input does not fit, or this is no transformer.
        """
        self.transformer_ = fit_token_net(self.transformer, read(self, X, reset=True, bag=self.bag).sequences)
        return self

    def transform(self, X: Any) -> Any:
        """Sequences of transformed tokens, in the form of the input.

        Examples
        --------
        >>> import numpy as np
        >>> from attsvm.estimator import TokenTransformer
        >>> from sklearn.preprocessing import StandardScaler
        >>> bags = [np.array([[1.0], [3.0]]), np.array([[2.0]])]
        >>> TokenTransformer(StandardScaler()).fit_transform(bags)[1]
        array([[0.]])
        """
        check_is_fitted(self)
        given = read(self, X, reset=False, bag=self.bag)
        mapped = through(self.transformer_, given.sequences)
        if isinstance(X, Sequences):
            return mapped
        tokens = mapped.table[mapped.ids]
        if isinstance(given, Table):
            named = getattr(self.transformer_, "get_feature_names_out", lambda names: range(tokens.shape[1]))
            return given.with_columns(named(self.feature_names_in_), tokens)
        return given.restore(tokens)


def fit_token_net(token_net: Any, sequences: Sequences) -> Any:
    """A copy, fitted to the tokens if it is a transformer; a module is used as it is.

    Raises ProblemError if it is neither.
    """
    if is_module(token_net):
        return copy.deepcopy(token_net).eval()
    if not (hasattr(token_net, "fit") and hasattr(token_net, "transform")):
        raise ProblemError(
            f"token_net: expected a transformer of scikit-learn, a module of PyTorch or None, got {token_net!r}"
        )
    return clone(token_net).fit(sequences.table[np.unique(sequences.ids)])


def through(token_net: Any, sequences: Sequences) -> Sequences:
    """Sequences of mapped tokens; each row of the table that occurs is mapped once."""
    rows, ids = np.unique(sequences.ids, return_inverse=True)
    blocks = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
    apply = _module_outputs if is_module(token_net) else type(token_net).transform
    mapped = [np.asarray(apply(token_net, sequences.table[block])) for block in blocks]
    table = np.concatenate(mapped).astype(sequences.table.dtype, copy=False)
    if table.ndim != 2 or len(table) != len(rows):
        raise ProblemError(f"token_net: expected one vector for each of {len(rows)} tokens, got shape {table.shape}")
    return Sequences(table, ids, sequences.offsets)


def is_module(token_net: Any) -> bool:
    """Whether it is a PyTorch module; PyTorch is not imported for that."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(token_net, torch.nn.Module)


def _module_outputs(module: Any, tokens: np.ndarray) -> np.ndarray:
    torch = sys.modules["torch"]
    parameter = next(module.parameters(), torch.zeros(()))
    with torch.no_grad():
        outputs = module(torch.tensor(tokens, dtype=parameter.dtype, device=parameter.device))
    return np.asarray(outputs.cpu())
