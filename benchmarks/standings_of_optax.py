"""Which Att-SVM optimizers of optax converge to: their rows of the table of standings, from the catalogue.

Each optimizer of optax with its default options for which the catalogue names a norm is trained again as for its entry,
on 8 problems, on the gradient divided by its norm and on the gradient itself. The rows hold the margin ratio in that
norm after half of the steps and after all, or after all only if the mean is below 0.95 before.

Run: python benchmarks/standings_of_optax.py [--write]
"""

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from attsvm.datasets import random_problem
from attsvm.norms import parse_norm
from attsvm.optimizers import Steps
from attsvm.optimizers.steps import written_steps
from attsvm.problem import stack_problems
from attsvm.profiles import Entry, catalogue
from attsvm.profiles.named import stepped
from attsvm.profiles.profile import _start
from attsvm.profiles.readings import PACES, SCHEDULES, ProblemPart
from attsvm.profiles.stepped import ProfileTask
from attsvm.training import parse_attention
from measure_catalogue import SETTINGS, Installed, installed_optimizers
from standings import ENOUGH, is_rising, write_rows

COMMAND = "python benchmarks/standings_of_optax.py"
PROBLEMS = 8


def rows(entry: Entry, one: Installed) -> Iterator[dict[str, Any]]:
    """One row on the gradient divided by its norm, and one on the gradient itself."""
    problem = stack_problems(random_problem(6, 8, 10, seed) for seed in range(PROBLEMS))
    given = SETTINGS[entry.setting]
    attention, batch = given.get("attention", "combined"), given.get("batch_size")
    shapes = parse_attention(attention, problem, None).shapes(problem)
    task = ProfileTask(problem, attention, _start(problem, shapes), (entry.steps,), normalize=True, batch_size=batch)
    part = ProblemPart(stepped(one.make(), None), task, slice(0, PROBLEMS), [parse_norm(entry.verdict)])
    assert entry.schedule in {*PACES, *SCHEDULES}
    factor = part.factor(entry.schedule)
    for normalised in ("step", "no"):
        steps = Steps(entry.optimizer, normalised=normalised)
        looks = [*part.readings(factor, (entry.steps // 2, entry.steps), None, normalize=normalised == "step")]
        means, leasts = ([float(f(look.ratios)) for look in looks] for f in (np.mean, np.min))
        # where the mean is large only at the end, the row begins there
        first = 0 if means[0] >= ENOUGH else 1
        changes = np.array([look.change for look in looks[first:]])
        found = "measured" if means[1] >= ENOUGH else "rising" if is_rising(steps, *means) else "none"
        yield {
            "command": COMMAND,
            "steps": written_steps(steps),
            "attention": attention,
            "norm": entry.verdict,
            "found": found,
            "measure": "margin ratio",
            "first": [means[first], leasts[first]],
            "last": [means[1], leasts[1]],
            "num_steps": [looks[first].step, looks[1].step],
            "logit_change": [abs(float(changes.min())), float(changes.max())],
            **({} if batch is None else {"batch": [batch], "sequences": problem.num_sequences}),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the rows of the table of standings, too")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for
    listed = {one.path: one for one in installed_optimizers() if not one.variant}
    found = []
    for entry in catalogue().entries:
        if entry.optimizer.startswith("optax.") and entry.optimizer in listed and entry.is_named and not entry.decays:
            for row in rows(entry, listed[entry.optimizer]):
                found.append(row)
                print(
                    entry.optimizer,
                    entry.setting,
                    row["steps"],
                    *(row[x] for x in ("found", "first", "last")),
                    flush=True,
                )
    if options.write:
        write_rows(found, COMMAND)


if __name__ == "__main__":
    main()
