"""Temporary memory of a compiled training step, compared with its tokens and with a copy of them per query and trial.

    python benchmarks/training_memory.py

The numbers are those of XLA for the program of one slice, which holds the trials that are computed together.
"""

import contextlib
from typing import Any
from unittest.mock import patch

import numpy as np

import attsvm
from attsvm.training.session import Session
from cases import markdown

# n, T, d, queries of a sequence (0: a prompt), trials
SIZES = [(4, 16, 64, 0, 32), (16, 256, 64, 0, 8), (64, 64, 64, 1, 16), (4, 16, 64, 16, 1), (8, 64, 64, 64, 1)]


class Compiled(Exception):
    """Ends a call of train once its program is compiled."""


def compiled_program(n: int, T: int, d: int, queries: int, trials: int) -> tuple[Any, int]:
    """The program of a slice, and its number of trials."""
    rng, shape = np.random.default_rng(0), (n, queries) if queries > 1 else (n,)
    given = rng.standard_normal((*shape, d)) if queries else None
    problem = attsvm.Problem(rng.standard_normal((n, T, d)), rng.choice([-1, 1], shape), given, rng.standard_normal(d))
    programs: list[tuple[Any, int]] = []

    def stop(session: Session, *_: object) -> bool:
        programs.append((session.executable, len(session.slices[0])))
        raise Compiled

    init = np.zeros((trials, d, d) if queries else (trials, d))
    with patch.object(Session, "advance", stop), contextlib.suppress(Compiled):
        attsvm.train(problem, init=init, steps=10, record=[10])
    return programs[0]


def main() -> None:
    """Print a table."""
    rows = []
    for n, T, d, queries, trials in SIZES:
        program, together = compiled_program(n, T, d, queries, trials)
        tokens = 8 * n * T * d
        numbers = program.memory_analysis().temp_size_in_bytes, tokens, tokens * together * max(1, queries)
        kind = f"{queries} per sequence" if queries else "prompt"
        rows.append([kind, str(n), str(T), str(d), str(together), *(f"{x / 2**10:,.0f}" for x in numbers)])
    print(
        markdown(
            ["queries", "n", "T", "d", "trials together", "temporary KiB", "tokens KiB", "one copy each KiB"], rows
        )
    )


if __name__ == "__main__":
    main()
