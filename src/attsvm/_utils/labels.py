"""Labels of two classes, and their names."""

import numpy as np

from attsvm.errors import ProblemError


def two_classes(labels: np.ndarray, name: str = "labels") -> np.ndarray | None:
    """The two different labels in increasing order; None for what :class:`attsvm.Problem` reads or refuses.

    ``name``: what error messages call them.

    Raises ProblemError if the labels are words, or one finite number other than ±1 for each sequence, but not two
    different ones.
    """
    classes = np.unique(labels)
    is_words = classes.dtype.kind == "U"
    is_finite = classes.dtype.kind in "biuf" and bool(np.isfinite(classes).all())
    # among the labels of queries there may be others, of queries that are not in use
    is_numbers = is_finite and np.ndim(labels) == 1 and not np.isin(classes, (-1, 1)).all()
    if (is_words or is_numbers) and len(classes) != 2:
        found = ", ".join(map(str, classes[:5])) + ", ..." * (len(classes) > 5)
        raise ProblemError(f"{name}: expected two different labels, got {len(classes)} ({found})")
    return classes if len(classes) == 2 and (is_words or is_finite) else None


def label_names(classes: np.ndarray | None) -> tuple[str, str] | None:
    """Names of the labels that count as +1 and −1; None if they are ±1."""
    if classes is None or np.array_equal(classes, [-1, 1]):
        return None
    negative, positive = (str(label) if classes.dtype.kind in "Ub" else f"{label:.12g}" for label in classes)
    return positive, negative
