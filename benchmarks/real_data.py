"""The mirror-descent paper's experiments at a size for two cores, which writes docs/notes/real_data.md.

For each task and optimiser there is one run for each of three step sizes with seed 0, evaluated on rows of the training
set that no run trains on. The seeds 0, 1 and 2 then use the best of the three, and are evaluated on the test rows.
Finished runs are stored in the folder of --out. A run that was killed continues from its checkpoint when the script is
started again. At the end the script writes the tables; with --only-table it does nothing else.

    python benchmarks/real_data.py --data ../shared/data --out out/real-data
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

from attsvm._utils.files import atomic_write
from attsvm._utils.progress import Progress
from attsvm.pages.experiment import experiment_page, name_of
from attsvm.pages.plain import dumps, jsonable
from attsvm.papers.experiments.experiment import Experiment, make_options
from attsvm.papers.experiments.sentences import SENTENCES
from attsvm.papers.experiments.tasks import find_task

SEEDS = (0, 1, 2)
RATES = {
    "imdb": {
        "mirror-1.1": (1e-3, 3e-3, 1e-2),
        "mirror-2": (1e-4, 3e-4, 1e-3),
        "mirror-3": (3e-5, 1e-4, 3e-4),
        "adam": (3e-4, 1e-3, 3e-3),
    },
    "cifar10": {"mirror-1.1": (1e-2, 2e-2, 5e-2), "adam": (3e-4, 1e-3, 3e-3)},
}
INTERPRETATION = "## Interpretation"
"""Heading of the last part of the document, which is written by hand and kept."""
TITLES = {"imdb": "Movie reviews (IMDb)", "cifar10": "Pictures (CIFAR-10)"}

Entry = tuple[str, str, float, int, bool]
"""Task, optimiser, step size, seed, and whether it is evaluated on validation rows."""


def file_of(out: Path, size: str, entry: Entry) -> Path:
    task, optimizer, rate, seed, validation = entry
    return out / size / f"{task}-{optimizer}-{rate:g}-seed{seed}-{'validation' if validation else 'test'}.json"


def finished(out: Path, size: str, entry: Entry) -> dict | None:
    path = file_of(out, size, entry)
    return json.loads(path.read_text()) if path.exists() else None


def trained(out: Path, size: str, entry: Entry, loaded: Experiment) -> dict:
    """The result of a run: from its file if it is finished, else by training it, or continuing it."""
    found = finished(out, size, entry)
    if found is not None:
        return found
    _, optimizer, rate, seed, _ = entry
    path = file_of(out, size, entry)
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    options = make_options(loaded.preset, optimizer, rate, seed=seed, checkpoint_every=20)
    started = time.perf_counter()

    def show(at: Progress) -> None:
        if at.step % 50 == 0:
            seconds = time.perf_counter() - started
            print(f"  {path.stem}: step {at.step} of {at.steps}, loss {at.loss:.3f}, {seconds:.0f} s", flush=True)

    result = jsonable(loaded.run(options, folder, resume=True, callback=show))
    if result["status"] == "interrupted":
        raise SystemExit("interrupted; start the script again to continue")
    with atomic_write(path) as stream:
        stream.write((dumps(result) + "\n").encode())
    accuracy = f"{result['best']['test_accuracy']:.2%}" if result["best"] else result["status"]
    print(f"{path.stem}: {accuracy}, {result['seconds']:.0f} s", flush=True)
    return result


def accuracy_of(result: dict) -> float:
    """At the best epoch; 0 for a run that diverged before the end of its first epoch."""
    return result["best"]["test_accuracy"] if result["best"] and result["status"] == "finished" else 0.0


def best_rate(results: dict[float, dict]) -> float:
    return max(results, key=lambda rate: accuracy_of(results[rate]))


def measure(task: str, size: str, source: Path, out: Path, vocabulary: str | None, validation_rows: int) -> None:
    folder = str(source / task)
    entries = [(task, name, rate, 0, True) for name, rates in RATES[task].items() for rate in rates]
    loaded = None
    if any(finished(out, size, entry) is None for entry in entries):
        loaded = Experiment.load(task, size, folder, vocabulary=vocabulary, validation_rows=validation_rows)
    validation = {entry: finished(out, size, entry) or trained(out, size, entry, loaded) for entry in entries}
    rates = {
        name: best_rate({entry[2]: result for entry, result in validation.items() if entry[1] == name})
        for name in RATES[task]
    }
    loaded = Experiment.load(task, size, folder, vocabulary=vocabulary)
    shown = []
    # all optimisers with one seed before the next seed, so that an interrupted benchmark can compare them
    for seed in SEEDS:
        for name, rate in rates.items():
            result = trained(out, size, (task, name, rate, seed, False), loaded)
            if seed == SEEDS[0]:
                shown.append(result)
    write_page(size, out, loaded, shown)


def write_page(size: str, out: Path, loaded: Experiment, runs: list[dict]) -> None:
    """The page of the runs with the first seed, as `attsvm experiment` writes it."""
    command = f"python benchmarks/real_data.py --data DATA --preset {size}"
    result = loaded.result(runs, command=command, seed=SEEDS[0], threads=None, device="cpu")
    folder = out / size / f"page-{loaded.task.name}"
    folder.mkdir(exist_ok=True)
    experiment_page(jsonable(result), loaded.task.pictures(loaded.data)).write(folder)


def spread(values: list[float], scale: float = 1.0, digits: int = 2) -> str:
    mean = scale * statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {scale * statistics.stdev(values):.{digits}f}"


def table(task: str, size: str, out: Path) -> list[str]:
    """Means and standard deviations of the finished runs, as Markdown."""
    words = task == "imdb"
    columns = [
        "optimiser",
        "step size",
        "seeds",
        "test accuracy, best epoch (%)",
        "last epoch (%)",
        "keys below 1e-4 (%)",
    ]
    columns += ["‖a‖₁²/(T‖a‖₂²)", "‖W_K W_Q′‖"] + ["key-word score (%)"] * words + ["seconds a run"]
    lines = ["| " + " | ".join(columns) + " |", "| --- " * len(columns) + "|"]
    for name, rates in RATES[task].items():
        found = {rate: finished(out, size, (task, name, rate, 0, True)) for rate in rates}
        if any(result is None for result in found.values()):
            continue
        rate = best_rate({rate: result for rate, result in found.items() if result is not None})
        results = [finished(out, size, (task, name, rate, seed, False)) for seed in SEEDS]
        runs = [result for result in results if result is not None and result["status"] == "finished"]
        if not runs:
            continue
        last = [result["history"][-1] for result in runs]
        cells = [name_of(name), f"{rate:g}", str(len(runs)), spread([accuracy_of(result) for result in runs], 100)]
        cells.append(spread([row["test_accuracy"] for row in last], 100))
        cells.append(spread([row["weights"]["key"]["negligible"] for row in last], 100, 1))
        cells.append(spread([statistics.mean(row["attention_evenness"]["all"]) for row in last], digits=3))
        cells.append(spread([statistics.mean(row["key_query_norm"]) for row in last]))
        if words:
            cells.append(spread([result["key_words"]["score"] for result in runs], 100, 1))
        cells.append(spread([result["seconds"] for result in runs], digits=0))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def validation_table(task: str, size: str, out: Path) -> list[str]:
    lines = ["| optimiser | step sizes tried | validation accuracy, best epoch (%) |", "| --- | --- | --- |"]
    for name, rates in RATES[task].items():
        found = [finished(out, size, (task, name, rate, 0, True)) for rate in rates]
        cells = ["not run" if one is None else f"{100 * accuracy_of(one):.2f}" for one in found]
        lines.append(f"| {name_of(name)} | {', '.join(f'{rate:g}' for rate in rates)} | {', '.join(cells)} |")
    return lines


def document(sizes_of: list[tuple[str, str]], out: Path, validation_rows: int, threads: int) -> str:
    parts = [
        "# Experiments on real data",
        "",
        "Transformers on movie reviews and on pictures, trained as `attsvm experiment` trains them, with different",
        "optimisers. The tables are written by `python benchmarks/real_data.py --data DATA`. They show the mean ±",
        "standard deviation over seeds, all on the CPU. The step size is the best of three, with seed 0, on",
        f"{validation_rows:,} rows of the training set that no run trains on.",
        "",
        "- The best epoch is chosen on the test rows, as in the paper, so it is an optimistic estimate. The last epoch",
        "  is not chosen. The other columns are for the weights of the last epoch.",
        "- *Keys below 1e-4*: share of key weights with a smaller absolute value.",
        "- *‖a‖₁²/(T‖a‖₂²)*: how evenly attention is distributed, mean over layers, heads and queries. It is 1 if all",
        "  T tokens receive the same attention, and 1/T if one token receives all of it.",
        "- *‖W_K W_Q′‖*: Frobenius norm of the key-query weights.",
        "- *Key-word score*: share of attention that the [CLS] query of the last layer gives to the words that carry",
        f"  the sentiment, in {len(SENTENCES)} short sentences.",
        f"- *Seconds*: wall time including evaluations, with {threads} {'thread' if threads == 1 else 'threads'}",
        "  per run, on a machine that may have had other work.",
    ]
    for task, size in sizes_of:
        chosen = find_task(task).preset(size)
        blocks = chosen.shape.blocks
        rows = "all" if chosen.train_rows is None else f"{chosen.train_rows:,}"
        parts += [
            "",
            f"## {TITLES[task]}, preset `{size}`",
            "",
            f"{rows} training rows, at most {chosen.epochs} epochs in batches of {chosen.batch}; "
            f"{blocks.layers} layers of {blocks.heads} heads, width {blocks.width}, dropout {blocks.dropout:g}.",
            "",
            *table(task, size, out),
            "",
            *validation_table(task, size, out),
        ]
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the folders imdb and cifar10")
    parser.add_argument("--out", type=Path, default=Path("out/real-data"), help="finished runs and checkpoints")
    parser.add_argument("--docs", type=Path, default=Path("docs/notes/real_data.md"))
    parser.add_argument("--preset", default="small")
    parser.add_argument("--tasks", default="imdb,cifar10")
    parser.add_argument("--vocabulary")
    parser.add_argument("--validation-rows", type=int, default=4_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--only-table", action="store_true", help="write the tables of the finished runs, and train nothing"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tasks = options.tasks.split(",")
    (options.out / options.preset).mkdir(parents=True, exist_ok=True)
    try:
        if not options.only_table:
            for task in tasks:
                measure(task, options.preset, options.data, options.out, options.vocabulary, options.validation_rows)
    finally:
        text = document(
            [(task, options.preset) for task in tasks], options.out, options.validation_rows, options.threads
        )
        before = options.docs.read_text(encoding="utf-8") if options.docs.exists() else ""
        text += "\n" + before[before.index(INTERPRETATION) :] if INTERPRETATION in before else ""
        with atomic_write(options.docs) as stream:
            stream.write(text.encode())


if __name__ == "__main__":
    main()
