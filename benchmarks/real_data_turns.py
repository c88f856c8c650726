"""A long experiment whose optimizers take turns, epoch by epoch, so that it can be stopped and continued at any time.

With --search the script first trains every optimizer with several step sizes for a few epochs, on rows of the
training set that the later runs do not train on, and takes the best one of each. Then every optimizer trains for one
epoch in turn, until all are finished, --minutes are over, or Ctrl-C. After every turn the page and the numbers in --out
are those of all epochs so far. The script continues where it was stopped; so does `attsvm experiment` with --resume,
which trains one optimizer after the other.

    python benchmarks/real_data_turns.py --data ../shared/data --out out/paper-3-third --search 1
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attsvm._utils.files import atomic_write
from attsvm._utils.progress import Progress
from attsvm.pages.experiment import experiment_page
from attsvm.pages.experiment_folder import run_folder
from attsvm.pages.plain import dumps, jsonable
from attsvm.papers.experiments.experiment import Experiment, make_options
from attsvm.papers.experiments.options import Options

VALIDATION_ROWS = 4_000
FACTORS = (1.0, 3.0)
"""Step sizes of the search, times that of the preset. A batch of a third has about a third of the published gradient,
which is a sum over the batch; three times the step size makes up for it."""


Results = dict[Path, dict[str, Any]]


class Turns:
    """The runs of an experiment, in turns of one epoch.

    Parameters
    ----------
    loaded : Experiment
    runs : list
        Options and folder of each.
    deadline : float
        On the clock of ``time.monotonic``.
    """

    def __init__(self, loaded: Experiment, runs: list[tuple[Options, Path]], deadline: float) -> None:
        self.loaded, self.runs, self.deadline = loaded, runs, deadline
        self.batches = -(-len(loaded.data.train) // runs[0][0].batch)
        self.results: Results = {}

    def train(self, epochs: int, after_round: Callable[[Results], None]) -> bool:
        """Train until every run has made ``epochs`` epochs or ended; whether they have."""
        waiting = list(self.runs)
        while waiting:
            for options, folder in list(waiting):
                result, in_time = self._turn(options, folder)
                self.results[folder] = result
                last = result["history"][-1]
                accuracy = f"epoch {last['epoch']}, test accuracy {last['test_accuracy']:.2%}"
                print(f"{folder.name}: {result['status']}, {accuracy}, {result['seconds']:.0f} s", flush=True)
                if result["status"] != "interrupted" or last["epoch"] >= epochs:
                    waiting.remove((options, folder))
                if not in_time:
                    after_round(self.results)
                    return False
            after_round(self.results)
        return True

    def _turn(self, options: Options, folder: Path) -> tuple[dict[str, Any], bool]:
        """The result after an epoch; and whether there is time for another one."""
        ended = {"turn": False, "late": False}

        def stop(at: Progress) -> bool:
            # an epoch is evaluated before the next one begins
            ended["turn"] = at.step > 1 and at.step % self.batches == 1
            ended["late"] = time.monotonic() > self.deadline
            return ended["turn"] or ended["late"]

        result = jsonable(self.loaded.run(options, folder, resume=True, callback=stop))
        stopped = result["status"] == "interrupted" and not ended["turn"]
        return result, not (ended["late"] or stopped)


def searched(arguments: argparse.Namespace, changes: dict[str, Any], deadline: float) -> dict[str, float] | None:
    """The best step size of each optimizer on validation rows; None if there was no time to find it."""
    found = arguments.out.with_name(f"{arguments.out.name}-rates.json")
    if found.exists():
        return dict(json.loads(found.read_text())["best"])
    source = str(arguments.data / arguments.task)
    loaded = Experiment.load(arguments.task, arguments.preset, source, validation_rows=VALIDATION_ROWS)
    runs = []
    for name in arguments.optimizer.split(","):
        for factor in FACTORS:
            rate = float(f"{loaded.preset.learning_rates[name] * factor:.2g}")
            options = make_options(loaded.preset, name, rate, **changes)
            folder = arguments.out.with_name(f"{arguments.out.name}-search") / f"{name}-{rate:g}"
            folder.mkdir(parents=True, exist_ok=True)
            runs.append((options, folder))
    turns = Turns(loaded, runs, deadline)
    if not turns.train(arguments.search, lambda _: None):
        return None
    tried: dict[str, dict[float, float]] = {}
    for options, folder in runs:
        result = turns.results[folder]
        accuracy = 0.0 if result["status"] == "non_finite" else result["best"]["test_accuracy"]
        tried.setdefault(options.optimizer, {})[options.learning_rate] = accuracy
    best_rates = {name: max(rates, key=lambda rate: rates[rate]) for name, rates in tried.items()}
    with atomic_write(found) as stream:
        stream.write(
            (dumps({"best": best_rates, "epochs": arguments.search, "tried": jsonable(tried)}) + "\n").encode()
        )
    return best_rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folders imdb and cifar10")
    parser.add_argument("--out", type=Path, required=True, help="page, results and checkpoints")
    parser.add_argument("--task", default="imdb")
    parser.add_argument("--preset", default="paper-3-third")
    parser.add_argument("--optimizer", default="mirror-1.1,mirror-2")
    parser.add_argument("--search", type=int, default=0, metavar="EPOCHS", help="epochs for each step size; 0: none")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    deadline = time.monotonic() + 60 * arguments.minutes
    changes = {"seed": arguments.seed, "precision": arguments.precision, "device": arguments.device}
    rates = searched(arguments, changes, deadline) if arguments.search else {}
    if rates is None:
        return
    print(f"step sizes: {rates or 'those of the preset'}", flush=True)
    loaded = Experiment.load(arguments.task, arguments.preset, str(arguments.data / arguments.task))
    runs = [
        (make_options(loaded.preset, name, rates.get(name), **changes), run_folder(arguments.out, name))
        for name in arguments.optimizer.split(",")
    ]

    def write(results: Results) -> None:
        """The page of all epochs so far."""
        found = [results[folder] for _, folder in runs if folder in results]
        command = f"python benchmarks/real_data_turns.py --data DATA --preset {arguments.preset}"
        threads, device = arguments.threads, arguments.device
        result = loaded.result(found, command=command, seed=arguments.seed, threads=threads, device=device)
        experiment_page(jsonable(result), loaded.task.pictures(loaded.data)).write(arguments.out)

    Turns(loaded, runs, deadline).train(loaded.preset.epochs, write)


if __name__ == "__main__":
    main()
