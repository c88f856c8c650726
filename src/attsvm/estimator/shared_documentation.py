"""The parameters and attributes that the estimators share, described once."""

import inspect
import textwrap
from collections.abc import Callable
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARAMETERS = """\
optimizer : {{"adam", "mirror_descent", "gradient_descent"}}, another name, or optax transformation
    Trains {trained}. Other names are those of :mod:`attsvm.optimizers`, and import
    paths ``package.module:name``; they take ``learning_rate`` and ``p`` if they have such an option.
p : float
    For mirror descent: its potential is (1/p)‖·‖_p^p. Values near 1 make weights sparse.
learning_rate : float, optional
    By default {rate} for Adam, 0.1 for mirror and gradient descent, and the optimizer's own for other names. Must be
    None for an optax transformation.
alpha : float
    Strength of the penalty α/2n {penalty} for n training sequences, as in scikit-learn's ``MLPClassifier``.
batch_size : int
    Sequences per step. A step has fewer if their vectors take more than 32 MiB, but at least one.
max_steps : int
early_stopping : bool
    Hold out {part}, stop once their loss has not decreased by 1e-4 for 500 steps, and keep the
    parameters of the smallest loss. It is on by default because longer training spoils the selection. If it is off, or
    {few}, whose loss says little, the training objective is monitored
    instead and the last parameters are kept. ``validation`` of ``fit`` names other sequences to hold out.
random_state : int, RandomState or None
    For the validation split, the order of the batches, and the tokens that ``max_instances`` draws.
warm_start : bool
    Continue from the parameters of the last fit.
token_net : transformer or PyTorch module, optional
    Maps each token before {next}; it is not trained together with the {kind}. A transformer of scikit-learn is
    fitted to the training tokens, without labels; of tables it gets a data frame, so that a ``ColumnTransformer`` finds
    columns by name. Without one, words in tables become columns of zeros and ones. A module is used as it is, in
    evaluation mode, so train it first; its parameters are not changed, and a copy of it is kept.
scale : {{"columns", "common"}}, optional
    Tokens are centred and divided by the spread of each column, or by one common number, which keeps directions. By
    default "columns" for tables, whose columns have units of their own, and for arrays, with a warning, if the spreads
    of their columns differ by more than a factor of 10; otherwise "common". ``scale_`` says which.
device : str, optional
    Where to train: "cpu", "gpu" or "cuda" for the first GPU, "cuda:1" for the second. By default that of JAX.
    Prediction is on the CPU.
keep_sample : bool
    Keep up to 200 training sequences, for ``margin_report``. By default a fitted {kind} and its pickle hold none of
    the training data, except the landmarks of an ensemble.
max_instances : int, optional
    Most tokens of a sequence in a step of training. Of a longer sequence as many are drawn anew for each step, without
    replacement and by ``random_state``. By default all are used, and validation and prediction always use all.
"""

PARAMETERS_OF_CLASSES = """\
class_weight : dict, "balanced" or None
    Weights of the classes in the loss.
positive : label, or tuple of a label and the other one, optional
    {positive} Meta-estimators of scikit-learn may number the labels: a tuple, ``("yes", "no")``, says which number the
    positive one has.
ensemble : {{"auto"}} or bool
    Add ridge regressions on pooled features of the tokens to the output: {members}. A landmark
    is one of at most 300 training tokens, and similarities are exp(−γ‖x − z‖²) for six rates γ. The strength of each
    penalty, and the weights of these members, are those that predict left-out training sequences best. The output is
    their weighted sum plus that of {network}, scaled down to a root mean square of at most 0.5. By default a fit has
    an ensemble where early stopping can hold out nothing, because few sequences do not suffice to learn what to attend
    to: with at most 600 sequences, some of several tokens, at least five of each class and at most 4 million numbers in
    all, each class in at least two of ``groups``, and without ``warm_start``. ``partial_fit`` ends it. Fitted weights,
    attention, selected tokens and Att-SVMs are those of {network} alone; outputs, probabilities, ``instance_scores``
    and ``contributions`` are those of the ensemble. Landmarks are part of the fitted classifier, and of its files.
"""

ATTRIBUTES = """\
n_features_in_ : int
    d.
scale_ : str
    "columns" or "common".
ranges_ : ndarray, shape (d, 2), or None
    The smallest and the largest number of each column among at most 10,000 training tokens; NaN for words. A prediction
    refuses tokens of which more than half, and at least 20, are far from the range in a column, as in another unit: ten
    lengths of the range beyond it, or ten times nearer to zero than numbers of one sign. None compares nothing.
n_iter_ : int
    Steps made.
kept_step_ : int
    The step whose parameters were kept.
status_ : Status
    ``converged``: the loss no longer decreased. ``finished``: ``max_steps`` were made. ``interrupted``: the callback
    returned True.
"""

ATTRIBUTES_OF_CLASSES = """\
classes_ : ndarray, shape (C,)
    Sorted.
positive_ : label or None
    The positive one of two classes; None if it is not known, and for more classes.
ensemble_ : Ensemble or None
    The members beside the network, their weights, and how well they predict left-out sequences.
"""

BLOCKS = {
    "{shared parameters}\n": PARAMETERS,
    "{parameters of classes}\n": PARAMETERS_OF_CLASSES,
    "{shared attributes}\n": ATTRIBUTES,
    "{attributes of classes}\n": ATTRIBUTES_OF_CLASSES,
}


def document(**words: str | float) -> Callable[[Class], Class]:
    """Insert the shared parameters and attributes into the docstring of a class.

    They take the place of the lines ``{shared parameters}`` and the like, so ``help()`` and Sphinx show them. ``words``
    are put where the estimators differ.
    """
    indented = {name: textwrap.indent(str(text), "    ").lstrip() for name, text in words.items()}

    def insert(documented: Class) -> Class:
        if documented.__doc__:  # None with `python -OO`
            text = inspect.cleandoc(documented.__doc__)
            for line, lines in BLOCKS.items():
                text = text.replace(line, lines.format(**indented)) if line in text else text
            documented.__doc__ = text
        return documented

    return insert
