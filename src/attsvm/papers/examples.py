"""The worked examples of the papers, with their exact numbers.

- Token selection: Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*.
- Transformers: Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*.
- Mirror descent: Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*.
"""

from importlib.resources import as_file, files

import numpy as np

from attsvm.errors import ProblemError
from attsvm.problem import Problem

# in the first paper's planar examples the last coordinate of a token is its score; the keys do not contain it
_BY_LAST = np.array([0.0, 0.0, 1.0])


def one_sequence(local: bool = False) -> Problem:
    """One sequence of three tokens in the plane, with one or two locally optimal tokens: token selection, figure 1.

    ``local``: lower the score of the third token, so that the second token is locally optimal as well as the first.

    Returns tokens of shape (1, 3, 3): two coordinates and the score. The keys are the coordinates.
    """
    tokens = np.array([[[-0.1, 1.0, 1.0], [1.0, 0.0, 0.9], [0.0, 0.0, 0.0 if local else 0.9]]])
    return Problem(tokens, labels=[1.0], head=_BY_LAST, keys=_in_plane(tokens))


def several_sequences() -> Problem:
    """Three sequences of seven tokens in the plane, whose tokens that are not optimal have equal scores.

    Token selection, figure 2.
    """
    plane = np.array(
        [
            [
                [0.774832, -0.23047204],
                [-1.0867758, 1.1697421],
                [-1.0632025, 0.57695615],
                [-1.252667, 1.0699966],
                [-0.4760317, -0.2524684],
                [-0.54945564, -0.77053076],
                [-0.38666987, -0.34129834],
            ],
            [
                [0.68898094, -0.06827208],
                [-0.8499621, 0.8829005],
                [-0.9633044, 1.2778733],
                [-0.81074035, 0.8312646],
                [-0.49368146, -0.5985354],
                [-0.41206083, -0.47751775],
                [-0.41176873, -0.5204619],
            ],
            [
                [0.94206643, 0.010501497],
                [-0.5395589, 0.7062212],
                [-1.1138496, 1.1839943],
                [-0.74202514, 0.7043652],
                [-0.594624, -0.23494503],
                [-0.60994875, -0.5959669],
                [-0.7133961, -0.27701208],
            ],
        ]
    )
    scores = np.broadcast_to(np.array([1.0] + [0.5] * 6)[:, None], (3, 7, 1))
    tokens = np.concatenate([plane, scores], axis=-1)
    return Problem(tokens, labels=np.ones(3), head=_BY_LAST, keys=_in_plane(tokens))


def joint_prompt(slack: bool = False) -> Problem:
    """Three sequences of two tokens, without a head, for joint training with the prompt: token selection, figure 3.

    ``slack``: move the third sequence's token away, so that it is not a support vector of the head.
    """
    kept = np.array([[1.0, 1.0], [1.0, -1.0], [0.5, 1.5 if slack else 1.0]])
    tokens = np.stack([np.zeros_like(kept), kept], axis=1)
    return Problem(tokens, labels=[1.0, -1.0, 1.0])


def unequal_scores(ratio: float) -> Problem:
    """Two sequences of two tokens whose scores differ by a factor C, on which the choice of the loss matters.

    ``ratio``: C, the score of the optimal token of the first sequence. That of the second is 1. Token selection,
    comparison of losses in the appendix.
    """
    tokens = np.array([[[0.0, 0.0, 0.0], [1.0, 1.0, ratio]], [[0.0, 0.0, 0.0], [1.0, -1.0, 1.0]]])
    return Problem(tokens, labels=np.ones(2), head=_BY_LAST, keys=_in_plane(tokens))


def in_the_plane(num_tokens: int = 3, self_attention: bool = False) -> Problem:
    """Make two sequences of tokens and queries in the plane, so that the paths of W and of (K, Q) can be drawn.

    The Frobenius and the nuclear Att-SVM of the optimal tokens differ clearly. ``num_tokens``: 3 or 5.
    ``self_attention``: the query of a sequence is its first token, z = x_1, in place of the published one.

    Transformers, the figures of paths; seeds 1 and 3 of the published code.

    Raises ProblemError if ``num_tokens`` is not 3 or 5.
    """
    if num_tokens == 3:
        tokens = [
            [[-0.9814968, 0.1863952], [-1.1355718, -0.04983907], [-1.4568305, 0.11450518]],
            [[0.6917174, -0.16891584], [0.7323128, -0.01747505], [0.9413471, -0.2896908]],
        ]
        queries = [[0.84501135, 0.5347484], [-0.63626397, -0.7714714]]
        head = [0.92731994, 0.37426966]
    elif num_tokens == 5:
        tokens = [
            [
                [1.0, 0.5],
                [-0.18972462, -0.798354],
                [-0.7976964, 0.30564982],
                [-0.6198048, -0.01682163],
                [-1.1724226, 0.24682678],
            ],
            [
                [1.0, -0.5],
                [-0.757443, 0.10261719],
                [-0.8307859, 0.676377],
                [-0.8131823, 0.00670824],
                [-0.6131634, -0.05462176],
            ],
        ]
        queries = [[-0.53912896, -0.8422232], [0.9525519, 0.30437642]]
        head = [0.9771238, 0.21267143]
    else:
        raise ProblemError(f"num_tokens: expected 3 or 5, got {num_tokens!r}")
    first = [sequence[0] for sequence in tokens]
    return Problem(tokens, labels=np.ones(2), queries=first if self_attention else queries, head=head)


def joint_mirror() -> Problem:
    """Two sequences of three tokens, without a head: mirror descent, joint training of W and v."""
    tokens = np.array([[[-2.7, 1.2], [1.4, 2.1], [1.3, -0.1]], [[0.4, -2.2], [-1.1, -0.4], [0.9, 0.1]]])
    return Problem(tokens, labels=[1.0, -1.0], queries=tokens[:, 0])


def mirror_path() -> tuple[Problem, np.ndarray]:
    """Return the random problem (n = 6, T = 8, d = 10) of a published run, and W at its start.

    Mirror descent, the paths of W; seed 1 of the published code.
    """
    with as_file(files(__package__) / "mirror_path.npz") as path, np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name].astype(np.float64) for name in stored.files}
    start = arrays.pop("start")
    return Problem(**arrays), start


def _in_plane(tokens: np.ndarray) -> np.ndarray:
    projected: np.ndarray = tokens * np.array([1.0, 1.0, 0.0])
    return projected
