"""What AdamW and Muon do to the keys and queries of a small GPT, trained on text from scratch.

Four arms: AdamW; Muon where each head of keys and queries is one matrix; Muon where all heads of a layer are one
matrix; and Muon per head with the coefficients that Muon ships in place of a converged polar factor. The learning rate
of each arm is chosen by the validation loss of another seed, from rates half a decade apart; the search is extended
until the best one is not the first or the last. Finished runs and their measures are stored in the folder of --out, and
a later call continues.

    python benchmarks/small_gpt.py --text ../shared/data/imdb --out out/small-gpt

--text is a file with text, or a folder with a train.parquet that has a column of texts. The sizes are "small" (a
tenth of a million parameters: a quarter of an hour of one processor core), "large" (10 million, for --device cuda) and
"tiny" (for tests). Writes small-gpt.png to the folder and prints the tables of docs/notes/small_gpt.md.
"""

import argparse
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attsvm._utils.files import atomic_write
from attsvm.plot import style
from small_gpt_figure import Runs, draw, table
from small_gpt_heads import measure, measure_together
from small_gpt_training import ARMS, SIZES, Arm, Size, Texts, read_text, train

TUNED_ON, SEEDS = 100, (0, 1)

HALF_DECADE = 10**0.5

RECORDED = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Shares of the steps before which a record is made; one more follows the last step."""


def stored(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The content of a JSON file, which is made first if it does not exist."""
    if not path.exists():
        found = make()
        with atomic_write(path) as stream:
            stream.write(json.dumps(found).encode())
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def best_rate(first: float, loss_at: Callable[[float], float]) -> float:
    """The best of three rates around the first one, extended until it is not at an end."""
    losses = {k: loss_at(first * HALF_DECADE**k) for k in (-1, 0, 1)}
    while (best := min(losses, key=losses.__getitem__)) in (min(losses), max(losses)):
        beyond = best + (1 if best == max(losses) else -1)
        losses[beyond] = loss_at(first * HALF_DECADE**beyond)
    return first * HALF_DECADE**best


def runs_of(folder: Path, size: Size, texts: Texts, device: str) -> tuple[Runs, dict[str, float]]:
    """Tune every arm on one seed, train it on the others, and measure those runs; records and learning rates by arm."""
    record_at = sorted({round(share * size.steps) for share in RECORDED})

    def run(name: str, arm: Arm, rate: float, seed: int) -> dict[str, Any]:
        def trained() -> dict[str, Any]:
            # only the runs that are measured need snapshots
            numbers, snapshots = train(arm, rate, seed, size, texts, device, record_at if seed in SEEDS else [])
            arrays = {key: np.stack([one[key] for one in snapshots]) for key in snapshots[0]}
            np.savez_compressed(folder / f"{name}.npz", **arrays)
            print(f"{name}: loss {numbers['validation_loss']:.4f}, {numbers['seconds']:.0f} s", flush=True)
            return numbers

        return stored(folder / f"{name}.json", trained)

    def loss_at(name: str, rate: float) -> float:
        loss: float = run(f"tuning-{name}-{rate:.2g}", ARMS[name], rate, TUNED_ON)["validation_loss"]
        return loss if np.isfinite(loss) else np.inf

    def measured(name: str) -> dict[str, Any]:
        with np.load(folder / f"{name}.npz") as arrays:
            pairs = list(zip(arrays["tokens"], arrays["weights"], strict=True))
        records: list[dict[str, Any]] = [{"heads": measure(*pair, size)} for pair in pairs]
        if size.joint_queries:
            # the tokens and weights of the last layer
            records[-1]["together"] = measure_together(*(array[-1] for array in pairs[-1]), size.joint_queries)
        return {"records": records}

    rates = {name: best_rate(arm.rate, lambda rate, name=name: loss_at(name, rate)) for name, arm in ARMS.items()}
    runs: Runs = {name: [] for name in ARMS}
    # all arms with one seed before the next seed, so that an interrupted benchmark can compare them
    for seed, name in product(SEEDS, ARMS):
        trained = f"{name}-seed{seed}"
        numbers = run(trained, ARMS[name], rates[name], seed)
        measures = stored(folder / f"{trained}-measures.json", lambda name=trained: measured(name))
        runs[name].append([one | more for one, more in zip(numbers["records"], measures["records"], strict=True)])
    return runs, rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size, folder = SIZES[arguments.size], arguments.out / arguments.size
    folder.mkdir(parents=True, exist_ok=True)
    runs, rates = runs_of(folder, size, read_text(arguments.text, size), arguments.device)
    print(table(runs, rates))
    with style.applied():
        (folder / "small-gpt.png").write_bytes(style.to_png(draw(runs)))


if __name__ == "__main__":
    main()
