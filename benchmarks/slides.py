"""Bags of the size of pathology slides: prompt attention and detectors beside models of torchmil, in one run.

100 bags of 2,000 to 10,000 instances with 512 features in float32, 1.24 GB; of a positive bag 1 % of the instances are
shifted by 2 along 8 axes. 40 more bags are the test. Each row is a process of its own. Its memory is the largest
resident memory above that before the library is imported, when the list of arrays is there; for memory-mapped bags it
includes the pages of the file. Seconds are those of a fit, of the processor and of a clock. A pass is the processor
time of the steps on all bags once, without reading, centring and checks before the first step.

Run: python benchmarks/slides.py [--bags 100] [--dim 512] [--epochs 5] [--steps 400] [--folder DIR]
         [--rows abmil-list,attention-list]
"""

import one_thread  # noqa: F401  # isort: skip

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
from sklearn.metrics import roc_auc_score

ROWS = {
    "abmil-list": "torchmil ABMIL, list",
    "dsmil-list": "torchmil DSMIL, list",
    "attention-list": "AttentionClassifier, list",
    "attention-mapped": "AttentionClassifier, memory-mapped",
    "detectors-list": "DetectorClassifier, list",
    "detectors-mapped": "DetectorClassifier, memory-mapped",
}


def make(folder, name, bags, dim, seed):
    """Write the instances of all bags as one array, and where the bags begin, their labels and those of instances."""
    if (folder / f"{name}.npz").exists():
        return
    generator = np.random.default_rng(seed)
    labels = np.arange(bags) % 2
    offsets, shifted, blocks = [0], [], []
    for label in labels:
        size = int(generator.integers(2000, 10_001))
        block, chosen = generator.standard_normal((size, dim), np.float32), np.zeros(size, bool)
        if label:
            chosen[generator.choice(size, max(1, size // 100), replace=False)] = True
            block[chosen, :8] += 2.0
        blocks.append(block)
        shifted.append(chosen)
        offsets.append(offsets[-1] + size)
    array = np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, (offsets[-1], dim))
    for start, block in zip(offsets, blocks, strict=False):
        array[start : start + len(block)] = block
    np.savez(folder / f"{name}.npz", offsets=offsets, labels=labels, shifted=np.concatenate(shifted))


class Peak:
    """The largest resident memory of this process since it was made."""

    def __init__(self):
        self.process = psutil.Process()
        self.base = self.largest = self.process.memory_info().rss
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while True:
            self.largest = max(self.largest, self.process.memory_info().rss)
            time.sleep(0.01)


class Torchmil:
    """A model of torchmil with its defaults, as its examples train them: a step of Adam for each bag."""

    def __init__(self, kind, dim, epochs, seed=0):
        import torch
        from torchmil import models

        torch.set_num_threads(1)
        torch.manual_seed(seed)
        # the decision of DSMIL is the mean of those of the bag and of its critical instance, which its loss has
        self.torch, self.epochs, self.is_dsmil = torch, epochs, kind == "DSMIL"
        self.net = getattr(models, kind)(in_shape=(dim,), att_dim=128)

    def fit(self, bags, labels):
        optimizer = self.torch.optim.Adam(self.net.parameters(), 1e-3)
        self.net.train()
        began = time.process_time()
        for epoch in range(self.epochs):
            for i in np.random.default_rng(epoch).permutation(len(bags)):
                optimizer.zero_grad()
                label = self.torch.tensor([float(labels[i])])
                _, losses = self.net.compute_loss(label, self.torch.from_numpy(bags[i])[None])
                sum(losses.values()).backward()
                optimizer.step()
        self.pass_seconds = (time.process_time() - began) / self.epochs
        return self

    def scores(self, bags):
        self.net.eval()
        with self.torch.no_grad():
            found = [self.of_bag(self.torch.from_numpy(np.array(bag))[None]) for bag in bags]
        return [float(decision) for decision, _ in found], np.concatenate([scores.ravel() for _, scores in found])

    def of_bag(self, x):
        """The decision, and the scores of the instances: their attention, or their logits in DSMIL."""
        if not self.is_dsmil:
            decision, attention = self.net(x, return_att=True)
            return decision, attention.numpy()
        decision, logits = self.net(x, return_inst_pred=True)
        return (decision + logits.max()) / 2, logits.numpy()


class Ours:
    """A classifier with its defaults, apart from the number of steps."""

    def __init__(self, kind, steps):
        import attsvm

        self.model = getattr(attsvm, kind)(max_steps=steps, random_state=0)

    def fit(self, bags, labels):
        from attsvm.datasets import Sequences
        from attsvm.estimator.batches import batches

        clock = []
        self.model.fit(bags, labels, callback=lambda progress: clock.append((progress.step, time.process_time())))
        data = bags if isinstance(bags, Sequences) else Sequences.from_arrays(bags)
        steps = len(batches(data, 2, self.model.batch_size, None, np.random.RandomState(0)))
        (first, begin), (last, end) = clock[0], clock[-1]
        self.pass_seconds = steps * (end - begin) / (last - first)

    def scores(self, bags):
        return self.model.decision_function(bags), self.model.instance_scores(bags)


def sequences(folder, name):
    from attsvm.datasets import Sequences

    table, about = np.load(folder / f"{name}.npy", mmap_mode="r"), np.load(folder / f"{name}.npz")
    return Sequences(table, np.arange(len(table)), about["offsets"])


def measure(row, folder, epochs, steps):
    """One row of the table."""
    kind, form = row.split("-")
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")
    table, bags = np.load(folder / "train.npy", mmap_mode="r"), None
    if form == "list":
        bags = [np.array(table[a:b]) for a, b in zip(train["offsets"][:-1], train["offsets"][1:], strict=True)]
        del table
    peak = Peak()
    wall, processor = time.perf_counter(), time.process_time()
    bags = sequences(folder, "train") if bags is None else bags
    classes = {"attention": "AttentionClassifier", "detectors": "DetectorClassifier"}
    ours = kind in classes
    model = Ours(classes[kind], steps) if ours else Torchmil(kind.upper(), bags[0].shape[1], epochs)
    model.fit(bags, train["labels"])
    spent = time.process_time() - processor, time.perf_counter() - wall
    above, size = peak.largest - peak.base, (folder / "train.npy").stat().st_size
    decision, instances = model.scores(sequences(folder, "test"))
    return {
        "pass": model.pass_seconds,
        "processor": spent[0],
        "wall": spent[1],
        "gigabytes": above / 1e9,
        "ratio": above / size,
        "auroc": roc_auc_score(test["labels"], decision),
        "instances": roc_auc_score(test["shifted"], instances),
        "steps": int(model.model.n_iter_) if ours else epochs * len(train["labels"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bags", type=int, default=100)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=5, help="of the models of torchmil")
    parser.add_argument("--steps", type=int, default=400, help="most steps of attsvm's classifiers")
    parser.add_argument("--folder", type=Path, help="where the bags are kept; by default they are removed")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {', '.join(ROWS)}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return print(json.dumps(measure(arguments.one, arguments.folder, arguments.epochs, arguments.steps)))
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        for name, bags, seed in (("train", arguments.bags, 1), ("test", 40, 2)):
            make(folder, name, bags, arguments.dim, seed)
        print(f"data: {(folder / 'train.npy').stat().st_size / 1e9:.2f} GB\n")
        print(
            "| model | pass, s | fit, processor s | fit, s | steps | memory above, GB | over data | AUROC | instances |"
        )
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for row in arguments.rows.split(","):
            numbers = ["--epochs", str(arguments.epochs), "--steps", str(arguments.steps)]
            command = [sys.executable, __file__, "--one", row, "--folder", folder, *numbers]
            answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            found = json.loads(answer.splitlines()[-1])
            print(
                "| {name} | {pass:.1f} | {processor:.0f} | {wall:.0f} | {steps} | {gigabytes:.2f} | {ratio:.2f} | "
                "{auroc:.3f} | {instances:.3f} |".format(name=ROWS[row], **found),
                flush=True,
            )


if __name__ == "__main__":
    main()
