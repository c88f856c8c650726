"""What AdamW and Muon do to the keys and queries of a small GPT, trained on text from scratch.

Four arms: AdamW; Muon where each head of keys and queries is one matrix; Muon where all heads of a layer are one
matrix; and Muon per head with the coefficients that Muon ships in place of a converged polar factor. The learning rate
of each arm is chosen by the validation loss of another seed, from rates half a decade apart; the search is extended
until the best one is not the first or the last. Finished runs are stored in the folder of --out, and a later call
continues. The measures are computed from the stored runs, so --only-measures repeats them without training.

    python benchmarks/small_gpt.py --text ../shared/data/imdb --out out/small-gpt

--text is a file with text, or a folder with a train.parquet that has a column of texts. The sizes are "small" (a
tenth of a million parameters, on a processor) and "large" (10 million, for --device cuda).
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm.report import style
from attsvm.storage import atomic_write
from small_gpt_figure import Runs, draw, table
from small_gpt_heads import measure
from small_gpt_training import ARMS, SIZES, Arm, Size, Texts, read_text, train

TUNED_ON, SEEDS = 100, (0, 1, 2)

HALF_DECADE = 10**0.5

RECORDED = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of the steps before which a record is made; one more follows the last step."""


def stored(folder: Path, name: str, run: Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]]) -> dict[str, Any]:
    """The numbers of a run, from its file if it is finished; else it is run, and its arrays are stored, too."""
    path = folder / f"{name}.json"
    if not path.exists():
        numbers, arrays = run()
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        with atomic_write(path) as stream:
            stream.write(json.dumps(numbers).encode())
        print(f"{name}: loss {numbers['validation_loss']:.4f}, {numbers['seconds']:.0f} s", flush=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def best_rate(first: float, loss_at: Callable[[float], float]) -> float:
    """The best of three rates around the first one, extended until it is not at an end."""
    losses = {k: loss_at(first * HALF_DECADE**k) for k in (-1, 0, 1)}
    while (best := min(losses, key=losses.__getitem__)) in (min(losses), max(losses)):
        beyond = best + (1 if best == max(losses) else -1)
        losses[beyond] = loss_at(first * HALF_DECADE**beyond)
    return first * HALF_DECADE**best


def runs_of(folder: Path, size: Size, texts: Texts, device: str) -> None:
    """Tune every arm on one seed, and train it on the others."""
    record_at = sorted({round(share * size.steps) for share in RECORDED})

    def run(name: str, arm: Arm, rate: float, seed: int) -> dict[str, Any]:
        def trained() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
            # only the runs that are measured need snapshots
            numbers, snapshots = train(arm, rate, seed, size, texts, device, record_at if seed in SEEDS else [])
            return numbers, {key: np.stack([one[key] for one in snapshots]) for key in snapshots[0]}

        return stored(folder, name, trained)

    def loss_at(name: str, rate: float) -> float:
        loss: float = run(f"tuning-{name}-{rate:.2g}", ARMS[name], rate, TUNED_ON)["validation_loss"]
        return loss if np.isfinite(loss) else np.inf

    rates = {name: best_rate(arm.rate, lambda rate, name=name: loss_at(name, rate)) for name, arm in ARMS.items()}
    # all arms with one seed before the next seed, so that an interrupted benchmark can compare them
    for seed in SEEDS:
        for name, arm in ARMS.items():
            run(f"{name}-seed{seed}", arm, rates[name], seed)


def measured_runs(folder: Path, size: Size) -> tuple[Runs, dict[str, float]]:
    """The records of the finished runs with the measures of the heads, and the learning rates, by arm."""
    runs: Runs = {}
    rates = {}
    for name in ARMS:
        for path in sorted(folder.glob(f"{name}-seed*.json")):
            numbers = json.loads(path.read_text())
            with np.load(path.with_suffix(".npz")) as arrays:
                pairs = list(zip(arrays["tokens"], arrays["weights"], strict=True))
            for record, (tokens, weights) in zip(numbers["records"], pairs, strict=True):
                record["heads"] = measure(tokens, weights, size)
            runs.setdefault(name, []).append(numbers["records"])
            rates[name] = numbers["rate"]
    (folder / "measures.json").write_text(json.dumps(runs))
    return runs, rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only-measures", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size, folder = SIZES[arguments.size], arguments.out / arguments.size
    folder.mkdir(parents=True, exist_ok=True)
    if not arguments.only_measures:
        runs_of(folder, size, read_text(arguments.text, size), arguments.device)
    runs, rates = measured_runs(folder, size)
    print(table(runs, rates))
    with style.applied():
        (folder / "small-gpt.png").write_bytes(style.to_png(draw(runs)))


if __name__ == "__main__":
    main()
