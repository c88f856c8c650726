"""Sweeps: speed of workers, overhead of a chunk, a million certified answers, and kills at random moments.

    python benchmarks/sweep.py workers
    python benchmarks/sweep.py empty
    python benchmarks/sweep.py feasible --store out/million [--trials 1000000]
    python benchmarks/sweep.py kills [--kills 20] [--seed 0]

`workers` compares two one-thread workers, one, and a bare loop over the same trials in a process on one core. `empty`
measures chunks that compute nothing. `feasible` continues its store, so it can be interrupted. `kills` sends SIGKILL
to a worker, the scheduler or the client, restarts what ended, and compares the stores with those of an undisturbed
process. The first three need an idle machine for their times.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import numpy as np

import attsvm
from attsvm.statistics import share
from attsvm.sweeps import Definition, Measure, Output, open_sweep
from attsvm.sweeps.executors import local_cluster

SIZES = {"num_sequences": 6, "num_tokens": 8, "dim": 10, "steps": 2000, "record": 2}


class Nothing(Measure):
    """Measures nothing."""

    name = "nothing"
    outputs: ClassVar = {"nothing": Output()}

    def measure(self, block):
        """Zeros."""
        return {"nothing": np.zeros(block.problem.batch_shape)}


def seconds_of(definition, cluster, store):
    """Wall time of a sweep on a cluster that has compiled its programs, and the CPU time of its workers."""
    from distributed import Client

    with Client(cluster) as client:
        before = sum(client.run(time.process_time).values())
        start = time.perf_counter()
        attsvm.sweep(definition, store=store, scheduler=cluster.scheduler_address)
        return time.perf_counter() - start, sum(client.run(time.process_time).values()) - before


def training(seed, trials):
    fixed = {**SIZES, "optimizer": "normalized_gradient_descent"}
    return Definition({"learning_rate": [0.1]}, ["loss"], trials, fixed=fixed, seed=seed, block=256)


def bare(trials):
    """Draw and train the same trials in batches of the same size, and keep their losses, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from attsvm.sweeps import SOURCES

    draw, definition = SOURCES["random"], training(1, trials)
    sizes = {name: SIZES[name] for name in ("num_sequences", "num_tokens", "dim")}
    rate = attsvm.optimizers.normalized_gradient_descent(0.1)
    for count in (1, definition.num_blocks):  # the first block compiles
        start, before, losses = time.perf_counter(), time.process_time(), []
        for block in range(count):
            problem = draw(definition.generators(0, 256 * block), **sizes)
            run = attsvm.train(problem, optimizer=rate, steps=SIZES["steps"], record=SIZES["record"])
            losses.append(run.loss)
    print(time.perf_counter() - start, time.process_time() - before)


def compare_workers(trials):
    times = {}
    command = [sys.executable, __file__, "bare", "--trials", str(trials)]
    alone = {**os.environ, "ATTSVM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    loops = []
    with tempfile.TemporaryDirectory() as folder:
        for workers in (1, 2):
            with local_cluster(workers) as cluster:
                seconds_of(training(0, 256 * 6 * workers), cluster, f"{folder}/warm{workers}")
                repeats = [seconds_of(training(1, trials), cluster, f"{folder}/{workers}-{k}") for k in range(3)]
                times[workers] = np.min(repeats, axis=0)
            for _ in range(2):
                loops.append(subprocess.run(command, env=alone, check=True, capture_output=True).stdout.split())
    bare_wall, bare_cpu = np.min(np.array(loops, float), axis=0)
    print(f"{trials:,} trials of {SIZES['steps']:,} steps; the least of the repeats")
    for name, (wall, cpu) in (("bare loop", (bare_wall, bare_cpu)), ("1 worker", times[1]), ("2 workers", times[2])):
        print(f"{name:10} {wall:7.2f} s {trials / wall:9,.0f} trials/s {cpu:7.2f} s of CPU time")
    print(f"two workers over one: {times[1][0] / times[2][0]:.2f} (target 1.8)")
    for k in (1, 2):
        wall, cpu = bare_wall / times[k][0] / k, bare_cpu / times[k][1]
        print(f"each of {k} over the bare loop: {wall:.2f} by wall time (target 0.9), {cpu:.2f} by CPU time")


def empty_chunks(chunks):
    sizes = {"num_sequences": 1, "num_tokens": 2, "dim": 2}
    definition = Definition({"dim": [2]}, [Nothing()], 8 * chunks, fixed={k: sizes[k] for k in sizes if k != "dim"})
    definition = definition.changed(block=8)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        attsvm.sweep(definition, store=f"{folder}/0", workers=0, chunk=8)
        print(f"in the process: {1000 * (time.perf_counter() - start) / chunks:.2f} ms a chunk")
        for workers in (1, 2):
            with local_cluster(workers) as cluster:
                options = {"scheduler": cluster.scheduler_address, "chunk": 8}
                attsvm.sweep(definition.changed(trials=80, block=8), store=f"{folder}/warm{workers}", **options)
                start = time.perf_counter()
                attsvm.sweep(definition, store=f"{folder}/{workers}", **options)
                seconds = (time.perf_counter() - start) / chunks
            print(f"{workers} worker{'s' * (workers > 1)}: {1000 * seconds:.2f} ms a chunk (target 20)")


def million(store, trials):
    fixed = {"num_sequences": 4, "num_tokens": 4}
    definition = Definition({"dim": [4]}, ["feasible"], trials, fixed=fixed, block=1000, name="phase-feasible")
    before = int(open_sweep(store).done.sum()) if Path(store).exists() else 0
    start = time.perf_counter()
    found = attsvm.sweep(definition, store=store, progress=True)
    seconds = time.perf_counter() - start
    processes = (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    worker, own = (resource.getrusage(which).ru_maxrss / 2**20 for which in processes)
    feasible, statuses = found.feasible.values[0], found.feasibility_status.values[0]
    meanings = found.feasibility_status.attrs["flag_meanings"].split()
    print(f"{trials - before:,} trials in {seconds:,.0f} s")
    print(f"largest memory: a worker {worker:.2f} GiB, the client {own:.2f} GiB")
    print({name: int((statuses == code).sum()) for code, name in enumerate(meanings)})
    rate = share((feasible == 1).sum(), (feasible >= 0).sum())
    print(f"feasible: {rate.value:.5f} [{rate.low:.5f}, {rate.high:.5f}] of {rate.trials:,} certified answers")


def disturbed(seed):
    grid = {"num_sequences": [3, 6], "dim": [4, 8]}
    fixed = {"num_tokens": 5, "steps": 3000, "record": 5}
    return Definition(grid, ["kind", "loss", "decision_step"], 256, fixed=fixed, seed=seed, block=32)


def client(store, seed, scheduler):
    attsvm.sweep(disturbed(seed), store=store, scheduler=scheduler, chunk=32)


class Cluster:
    """A scheduler, two workers and a client as separate processes, each of which may end at any moment."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.folder, self.running = folder, {}

    def start(self, name, *command):
        """Start a process; what it writes is appended to a file."""
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)

    def start_missing(self, store, seed):
        """Start what has ended; True if the client has finished the sweep."""
        if "client" in self.running and self.running["client"].poll() == 0:
            return True
        here = ("--host", "127.0.0.1")
        if self.ended("scheduler"):
            self.start("scheduler", "-m", "distributed.cli.dask_scheduler", *here, "--port", str(self.port),
                       "--no-dashboard")  # fmt: skip
        for worker in ("worker 1", "worker 2"):
            if self.ended(worker):
                self.start(worker, "-m", "distributed.cli.dask_worker", self.address, *here, "--nthreads", "1",
                           "--no-nanny", "--no-dashboard", "--local-directory", str(self.folder))  # fmt: skip
        if self.ended("client"):
            self.start("client", __file__, "client", "--store", store, "--seed", str(seed), "--scheduler", self.address)
        return False

    def ended(self, name):
        """Whether a process is not running."""
        return name not in self.running or self.running[name].poll() is not None

    def kill(self, name):
        """SIGKILL; False if the process has ended by itself."""
        if self.ended(name):
            return False
        os.kill(self.running[name].pid, signal.SIGKILL)
        self.running[name].wait()
        return True

    def stop(self):
        """Kill all processes."""
        for name in self.running:
            self.kill(name)


CHUNKS = 32
"""The chunks of a disturbed sweep."""


class Moment:
    """A random moment after the next chunk is committed, so that something is under way."""

    def __init__(self, dice, store):
        self.store, self.before, self.delay = store, committed(store), dice.uniform(0, 1)
        self.at, self.latest = None, time.monotonic() + 600

    def has_come(self):
        """Whether it is now; never when all chunks are committed, because nothing would be lost."""
        now = time.monotonic()
        if committed(self.store) == CHUNKS:
            return False
        if self.at is None and committed(self.store) > self.before:
            self.at = now + self.delay
        if self.at is None and now > self.latest:
            raise TimeoutError(f"{self.store}: no chunk was committed in 600 s")
        return self.at is not None and now >= self.at


def kill_at_random(kills, seed):
    dice, made = random.Random(seed), dict.fromkeys(("worker 1", "worker 2", "scheduler", "client"), 0)
    folder = Path(tempfile.mkdtemp(prefix="attsvm-kills-"))
    stores, cluster = [], Cluster(folder)
    try:
        while sum(made.values()) < kills:
            sweep_seed = len(stores)
            stores.append(str(folder / f"store{sweep_seed}"))
            cluster.running.pop("client", None)
            moment = Moment(dice, stores[-1])
            while not cluster.start_missing(stores[-1], sweep_seed):
                name = dice.choice([*made]) if moment.has_come() else None
                if name and sum(made.values()) < kills and cluster.kill(name):
                    made[name] += 1
                    print(f"killed the {name} after {committed(stores[-1])} of {CHUNKS} chunks", flush=True)
                    moment = Moment(dice, stores[-1])
                time.sleep(0.05)
    finally:
        cluster.stop()
    print(f"SIGKILLs: {made}; {len(stores)} sweeps")
    same = [equal(Path(store), folder / f"undisturbed{k}", k) for k, store in enumerate(stores)]
    print("all arrays are equal bit for bit" if all(same) else f"different arrays: see {folder}")
    if all(same):
        shutil.rmtree(folder)
    return all(same)


def committed(store):
    return len(list(Path(store).glob("data.zarr/done/c/*/*/?")))


def equal(store, other, seed):
    """Whether a store has the arrays of an undisturbed sweep in one process."""
    expected = attsvm.sweep(disturbed(seed), store=other, workers=0, chunk=64)
    found = open_sweep(store)
    assert bool(found.done.all())
    return set(found.variables) == set(expected.variables) and all(
        found[name].dtype == expected[name].dtype and found[name].values.tobytes() == expected[name].values.tobytes()
        for name in found.variables
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["workers", "bare", "empty", "feasible", "kills", "client"])
    parser.add_argument("--trials", type=int)
    parser.add_argument("--store", default="out/million")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--scheduler")
    given = parser.parse_args()
    parts = {
        "workers": lambda: compare_workers(given.trials or 8192),
        "bare": lambda: bare(given.trials),
        "empty": lambda: empty_chunks(given.trials or 400),
        "feasible": lambda: million(given.store, given.trials or 10**6),
        "kills": lambda: sys.exit(not kill_at_random(given.kills, given.seed)),
        "client": lambda: client(given.store, given.seed, given.scheduler),
    }
    parts[given.part]()


if __name__ == "__main__":
    main()
