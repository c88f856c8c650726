"""Keys that attention heads share: the norm of the weights side by side, in which training maximises the margin."""

from typing import ClassVar

from attsvm.datasets import random_problem
from attsvm.optimizers import Decaying, spectral_descent
from attsvm.papers.figure import Arrays, Sizes
from attsvm.papers.figures import FIGURES
from attsvm.papers.figures.multi_head import MultiHead
from attsvm.papers.judging import margin_ratios, undecided
from attsvm.papers.schedules import limit_optimizer
from attsvm.training import train

NORMS = {
    "sum over heads of nuclear": "Σ ‖W$_h$‖$_*$",
    "sum over 2 groups of nuclear": "Σ ‖[W$_1$ W$_2$]‖$_*$",
    "sum over 1 group of nuclear": "‖[W$_1$ … W$_4$]‖$_*$",
    "max over heads of spectral": "max ‖W$_h$‖",
}
OWN = {
    "gradient descent, 4 K": 0,
    "gradient descent, 2 K": 1,
    "gradient descent, 1 K": 2,
    "spectral, each head, 1 K": 3,
}
"""Steps and the number of matrices K that four heads share, and the norm that is expected."""


def _ratios(name: str, case: dict[str, int], steps: int) -> Arrays:
    steps_of, number = name.rsplit(", ", 1)
    n, T, d, problems, seed = (case[key] for key in ("n", "T", "d", "problems", "seed"))
    problem = random_problem(n, T, d, seed, num_heads=4, key_groups=int(number.removesuffix(" K")), batch=(problems,))
    # weight decay forgets the first steps
    spectral = spectral_descent(Decaying(0.05, 100, 0.5), weight_decay=0.02)
    optimizer = spectral if steps_of.startswith("spectral") else limit_optimizer("factored", steps)
    run = train(problem, attention="factored", optimizer=optimizer, steps=steps, record=[steps])
    return {"ratio": margin_ratios(problem, run, NORMS), "decided": ~undecided(run.probability, axes=2)}


class Layouts(MultiHead):
    norms: ClassVar[dict[str, str]] = NORMS
    own: ClassVar[dict[str, int]] = OWN
    ratios = staticmethod(_ratios)

    name = "layouts"
    order = 6.3
    title = "Shared keys: the joint norm of the attention heads"
    seconds = 40
    claim = (
        "Four attention heads W_h = K Q_h' have 4, 2 or 1 key matrices K, each shared by consecutive heads (grouped "
        "and multi-query attention). Gradient descent on all K and Q_h maximises the smallest margin of all heads in a "
        "sum over the matrices K. Each term is the nuclear norm of the weights of the heads that share this K, side by "
        "side. Spectral steps on each matrix do so in the largest spectral norm of a head, as without shared keys. "
        "(Mean margin ratio over the problems; the own norm of each optimiser is framed.)"
    )
    full: ClassVar[Sizes] = {
        "cases": [
            {"n": 3, "T": 4, "d": 5, "problems": 6, "seed": 0},
            {"n": 4, "T": 5, "d": 8, "problems": 6, "seed": 1},
        ],
        "optimizers": list(OWN),
        "steps": 20_000,
        "mean_above": [0.998, 0.998, 0.998, 0.99],
        "least_above": [0.995, 0.995, 0.995, 0.98],
    }
    quick: ClassVar[Sizes] = {
        **full,
        "cases": [{"n": 3, "T": 4, "d": 5, "problems": 2, "seed": 0}],
        "optimizers": ["gradient descent, 2 K", "gradient descent, 1 K"],
        "steps": 8000,
        "mean_above": [0.99] * 4,
        "least_above": [0.98] * 4,
    }


FIGURES.register(Layouts.name, Layouts())
