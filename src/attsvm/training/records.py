"""Records of a run up to its end, and the attention at these steps."""

import numpy as np

from attsvm._utils.extensions import named_by_file
from attsvm._utils.shapes import Float, Int
from attsvm.problem import Problem, take_sequences
from attsvm.training.maps.registry import parse_map
from attsvm.training.run import Run


def records_to_the_end(run: Run) -> dict[str, np.ndarray]:
    """The records of the run. The end of an interrupted run, which lies between two records, is added to them."""
    made = run.history["steps"] <= run.step
    records = {name: np.asarray(values)[made] for name, values in run.history.items()}
    if records["steps"][-1] < run.step:
        end = {
            "steps": run.step,
            **{name: getattr(run, name) for name in ("loss", "probability", "weights", "selected", "log_scale")},
        }
        end |= run.parameters
        records = {name: np.concatenate([records[name], [last]]) for name, last in end.items() if name in records}
    return records


def recorded_attention(
    run: Run, part: Problem, rows: Int[np.ndarray, " m"], most: int = 24
) -> tuple[Int[np.ndarray, " R"], Float[np.ndarray, "R m Q T"]]:
    """The attention that some sequences had at recorded steps.

    ``part``: its sequences; not necessarily those that were trained on. ``rows``: their numbers. ``most``: of the
    records, at most so many are used; the first and the last are among them.

    Returns ``steps`` and ``attention`` (0 at masked tokens).
    """
    records, shown = records_to_the_end(run), take_sequences(part, rows)
    with named_by_file():
        attention = parse_map(run.map)
    chosen = np.unique(np.linspace(0, len(records["steps"]) - 1, most).round().astype(int))
    return records["steps"][chosen], np.array([attention.attention_of(shown, records["weights"][k]) for k in chosen])
