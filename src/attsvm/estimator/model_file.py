"""Model files: a fitted estimator as arrays and JSON, without pickle."""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from typing import Any
from zipfile import ZipFile

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from attsvm._utils.archives import check_members, read_npz, write_npz
from attsvm._utils.extras import check_installed
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.estimator.token_net import known_words, word_encoder
from attsvm.results import Status

KIND, SCHEMA = "model", 1
"""What the file holds, and the version of its format. It grows when an attribute is renamed or changes its meaning."""

ESTIMATORS = {
    "AttentionClassifier": "attsvm.estimator.classifier",
    "AttentionRegressor": "attsvm.estimator.regressor",
    "DetectorClassifier": "attsvm.estimator.detector_classifier",
    "TextClassifier": "attsvm.texts.classifier",
}
"""The modules of the estimators that have model files, by the names of their classes."""

PARTS = {
    "ColumnExtremes": "attsvm.estimator.pooling",
    "Coordinates": "attsvm.estimator.coordinates",
    "CoxLoss": "attsvm.estimator.cox_loss",
    "Detectors": "attsvm.estimator.detectors",
    "Ensemble": "attsvm.estimator.ensemble",
    "FileColumns": "attsvm.estimator.predictions",
    "FitState": "attsvm.estimator.fitting",
    "LargestSimilarity": "attsvm.estimator.pooling",
    "MeanSimilarity": "attsvm.estimator.pooling",
    "Member": "attsvm.estimator.ensemble",
    "NgramFeatures": "attsvm.texts.ngrams",
    "NgramModel": "attsvm.texts.ngrams",
    "PartsChoice": "attsvm.texts.combination",
    "PromptAttention": "attsvm.estimator.prompt",
    "PromptRegression": "attsvm.estimator.prompt",
    "QuantileLoss": "attsvm.estimator.quantile_loss",
    "Similarities": "attsvm.estimator.pooling",
    "SquaredLoss": "attsvm.estimator.squared_loss",
    "Tally": "attsvm.estimator.task",
    "Tokenizer": "attsvm.texts.tokenizers",
    "WeightSum": "attsvm.estimator.regression_task",
    "WordVectors": "attsvm.texts.words",
}
"""The modules of the dataclasses that fitted attributes hold. A file names classes of these tables.

A class that is not made of its fields has ``saved``, which returns data, and ``restored``, which gets them.
"""

LEFT_OUT = {("FitState", "optimizer"), *((name, "_sample") for name in ESTIMATORS)}
"""What no prediction needs: it is None after loading. A file has no training tokens but an ensemble's landmarks."""

TRUSTED = ["numpy.dtype"]
"""What transformers of scikit-learn hold besides the types that skops trusts; it makes them from empty arrays."""

_OTHERWISE = "save the estimator with joblib.dump, which pickles it"


@dataclass(frozen=True)
class Unsaved:
    """Stands in a loaded estimator for a parameter of the fit that is no data, such as an optimiser of optax."""

    kind: str

    def __repr__(self) -> str:
        return f"<{self.kind}, which the model file left out>"


class Saveable:
    """An estimator that can be saved as a model file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to an ``.npz`` file, without pickle.

        The file holds no training data but the landmarks of an ensemble, at most 300 training tokens, and the words of
        texts and of columns of words. :func:`attsvm.load_model` reads it. Predictions of the loaded estimator are equal
        to the last bit. Its training can go on; the optimiser then begins anew.

        Parameters
        ----------
        path : path
            An existing file is replaced.

        Raises
        ------
        ProblemError
            If the ``token_net`` is no transformer of scikit-learn, or skops, which writes these, is not installed.
        NotFittedError
            If the estimator is not fitted.
        OSError
            If the file cannot be written.

        See Also
        --------
        attsvm.load_model

        Examples
        --------
        >>> import attsvm, tempfile
        >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
        >>> classifier = attsvm.AttentionClassifier(random_state=0).fit(bags.train, bags.train_labels)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     classifier.save(f"{folder}/model.npz")
        ...     loaded = attsvm.load_model(f"{folder}/model.npz")
        >>> bool((loaded.predict_proba(bags.test) == classifier.predict_proba(bags.test)).all())
        True
        """
        node, arrays = self._packed()
        write_npz(path, KIND, arrays, {"schema": SCHEMA, "model": node})

    def why_not_saved(self) -> str:
        """Why :meth:`save` refuses the fitted estimator; empty if it does not."""
        try:
            self._packed()
        except ProblemError as error:
            return str(error)
        return ""

    def _packed(self) -> tuple[Any, dict[str, np.ndarray]]:
        check_is_fitted(self)
        writer = _Writer()
        return writer.node(self, "model"), writer.arrays


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a fitted estimator from a file that its ``save`` method wrote.

    Loading runs no code of the file: it holds arrays and JSON, and names no classes but those of a fixed list. A
    ``token_net`` is read by skops, which refuses what is not of scikit-learn, NumPy or SciPy.

    Parameters
    ----------
    path : path

    Returns
    -------
    AttentionClassifier, AttentionRegressor, DetectorClassifier or TextClassifier
        Fitted. Parameters that are no data, such as an optimiser of optax, are left out of files; a fit needs new ones.

    Raises
    ------
    ProblemError
        If the file cannot be read, holds something else, or is of a newer version.

    See Also
    --------
    attsvm.AttentionClassifier.save

    Examples
    --------
    >>> import attsvm, tempfile
    >>> bags = attsvm.datasets.digit_bags(100, 20, seed=0)
    >>> classifier = attsvm.DetectorClassifier(random_state=0).fit(bags.train, bags.train_labels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     classifier.save(f"{folder}/model.npz")
    ...     attsvm.load_model(f"{folder}/model.npz").classes_
    array([0, 1])
    """
    arrays, meta = read_npz(path, KIND)
    schema = meta.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ProblemError(
            f"{path}: expected a model of schema {SCHEMA} or lower, got schema {schema}; it was written by attsvm "
            f"{meta.get('version')}"
        )
    for name, array in arrays.items():
        # the ranges of words are NaN
        if array.dtype.kind == "f" and not np.isfinite(array).all() and not name.endswith("ranges_"):
            raise ProblemError(f"{path}: {name}: expected finite numbers, got {array[~np.isfinite(array)].flat[0]}")
    try:
        found = _read(meta["model"], arrays)
        if type(found).__name__ not in ESTIMATORS:
            raise ProblemError(f"expected one of {', '.join(ESTIMATORS)}, got {type(found).__name__}")
        check_is_fitted(found)
    except Exception as error:  # a damaged file makes constructors raise errors of any kind
        raise ProblemError(f"{path}: not a complete model ({reason(error)})") from None
    return found


class _Writer:
    """Values as JSON. Their arrays are kept under names that say where they are."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def node(self, value: Any, place: str) -> Any:
        """A value as JSON; raises ProblemError if it is no data."""
        name = type(value).__name__
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, jax.Array):
            value = np.asarray(value)
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
            return {"array" if isinstance(value, np.ndarray) else "scalar": self._stored(np.asarray(value), place)}
        if isinstance(value, np.ndarray) and value.dtype == object:
            return {"objects": self.node(value.tolist(), place)}
        if type(value) in (list, tuple):
            return {name: [self.node(one, f"{place}/{number}") for number, one in enumerate(value)]}
        if type(value) is dict:
            return {
                "dict": [
                    [self.node(key, f"{place}/key {i}"), self.node(value[key], f"{place}/{_name(key, i)}")]
                    for i, key in enumerate(value)
                ]
            }
        if isinstance(value, Status):
            return {"status": str(value)}
        if name in ESTIMATORS and isinstance(value, Saveable):
            return self._of_class(name, _attributes(value), place)
        if name in PARTS and is_dataclass(value):
            held = value.saved() if hasattr(value, "saved") else {x.name: getattr(value, x.name) for x in fields(value)}
            return self._of_class(name, held, place)
        if isinstance(value, Unsaved):
            return {"unsaved": value.kind}
        if isinstance(value, _WordEncoder):
            return {"words": self.node([value.columns, value.known], place)}
        if isinstance(value, BaseEstimator):
            return {"skops": self._stored(_with_skops(value, place), place)}
        raise ProblemError(f"{place}: expected numbers, words and arrays, got {name}; {_OTHERWISE}")

    def _of_class(self, name: str, values: Mapping[str, Any], place: str) -> dict[str, Any]:
        kept = {key: value for key, value in values.items() if (name, key) not in LEFT_OUT}
        return {"class": name, "values": {key: self.node(value, f"{place}/{key}") for key, value in kept.items()}}

    def _stored(self, array: np.ndarray, place: str) -> str:
        self.arrays[place] = array
        return place


def _name(key: Any, number: int) -> str:
    return key if isinstance(key, str) and key.isidentifier() else str(number)


def _read(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The value that :class:`_Writer` wrote."""
    if not isinstance(node, dict):
        return node
    if "class" in node:
        values = {key: _read(value, arrays) for key, value in node["values"].items()}
        return _made(node["class"], values)
    ((kind, held),) = node.items()
    if kind in ("array", "scalar"):
        return arrays[held] if kind == "array" else arrays[held][()]
    if kind == "skops":
        return _from_skops(arrays[held], held)
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_read(one, arrays) for one in held)
    if kind == "dict":
        return {_read(key, arrays): _read(value, arrays) for key, value in held}
    if kind == "objects":
        return np.array(_read(held, arrays), dtype=object)
    if kind == "words":
        return word_encoder(*_read(held, arrays))
    if kind in ("status", "unsaved"):
        return Status(held) if kind == "status" else Unsaved(held)
    raise ProblemError(f"it holds {kind!r}, which this version of attsvm does not know")


def _made(name: str, values: dict[str, Any]) -> Any:
    """An object of a class of the tables; what a file does not have is left at its default."""
    module = {**ESTIMATORS, **PARTS}.get(name)
    if module is None:
        raise ProblemError(f"it holds an object of the class {name!r}, which this version of attsvm does not have")
    kind = getattr(import_module(module), name)
    left_out = {key: None for of, key in LEFT_OUT if of == name}
    if name in PARTS:
        return kind.restored(**values) if hasattr(kind, "restored") else kind(**left_out, **values)
    made = kind()
    made.__dict__.update(left_out, **values)
    return made


@dataclass(frozen=True)
class _WordEncoder:
    """The transformer of tables with words if none is given: its columns, and the words of some of them."""

    columns: list[str]
    known: dict[str, list[str | None]]  # None is a missing entry


def _attributes(estimator: Any) -> dict[str, Any]:
    """What an estimator holds; parameters that are no data are replaced."""
    found = dict(vars(estimator))
    for name in {*estimator.get_params(deep=False)} - {"token_net"}:
        try:
            _Writer().node(found[name], name)
        except ProblemError:
            found[name] = Unsaved(type(found[name]).__name__)
    if found.get("token_net") is None and "token_net_" in found:
        found["token_net_"] = _WordEncoder(*known_words(found["token_net_"]))
    return found


def _with_skops(transformer: Any, place: str) -> np.ndarray:
    """A transformer of scikit-learn as bytes."""
    check_installed(f"{place}: saving {type(transformer).__name__}", "models", "skops")
    from skops.io import dumps, get_untrusted_types

    try:
        content = dumps(transformer)
        unknown = {*get_untrusted_types(data=content)}.difference(TRUSTED)
    except Exception as error:  # of a part that skops cannot write
        raise ProblemError(
            f"{place}: {type(transformer).__name__} cannot be written ({reason(error)}); {_OTHERWISE}"
        ) from None
    if unknown:
        raise ProblemError(f"{place}: expected parts of scikit-learn, got {', '.join(sorted(unknown))}; {_OTHERWISE}")
    return np.frombuffer(content, dtype=np.uint8)


def _from_skops(content: np.ndarray, place: str) -> Any:
    check_installed(f"{place}: reading a transformer", "models", "skops")
    from skops.io import loads

    with ZipFile(io.BytesIO(content.tobytes())) as archive:
        check_members(place, archive)
    return loads(content.tobytes(), trusted=TRUSTED)
