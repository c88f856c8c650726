"""Compare training with the method of the papers, a PyTorch autograd loop: W, (K, Q), mirror descent, a ReLU head.

n = 6, T = 8, d = 10, float64, 2,000 steps of 0.1 with the logistic loss; one trial alone and 1,000 together. The time
of compilation is printed separately; programs that earlier processes kept are not read. The last line is the time of a
spectral step on (K, Q) over that of the normalised gradient step, 1,000 trials together. Before anything is timed, both
sides must reach the same weights after 100 steps. PyTorch trains one trial after the other, as in the published code;
its time is that of one trial, with the best number of threads.

With ``--own``, only this library is timed: processor time on one core, which other work on the machine changes little,
of a step and of a spectral step, alone and for 1,000 trials.

    python benchmarks/training.py [--own] [--threads 2 --repeats 5]
"""

import argparse
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

import attsvm
from attsvm import heads, optimizers
from attsvm._utils.threads import num_threads
from attsvm.datasets import random_problem
from timing import seconds_of_step

STEPS, STEP, TRIALS, P = 2000, 0.1, 1000, 1.75
AGREE_AFTER, AGREE_TO = 100, 1e-9


class Way(NamedTuple):
    """One kind of training on both sides."""

    name: str
    ours: Callable[..., attsvm.Run]  # (problem, starts, steps, **record)
    peer: Callable[[attsvm.Problem, list[np.ndarray], int], np.ndarray]  # the weights of one trial
    starts: int  # number of trained arrays
    together: float  # required speed-up of 1,000 trials together
    alone: float  # required speed-up of one trial alone


def torch_loop(
    problem: attsvm.Problem,
    starts: list[np.ndarray],
    steps: int,
    *,
    hidden: np.ndarray | None = None,
    p: float = 2.0,
) -> np.ndarray:
    """Autograd, and a step along the gradient of each parameter divided by its ℓq norm; (K, Q) if there are two."""
    tokens, labels, queries, head = (
        torch.tensor(x) for x in (problem.tokens, problem.labels, problem.queries, problem.head)
    )
    units = None if hidden is None else torch.tensor(hidden)
    parameters = [torch.nn.Parameter(torch.tensor(start)) for start in starts]
    optimizer = torch.optim.SGD(parameters, lr=STEP)
    q = p / (p - 1)
    for _ in range(steps):
        optimizer.zero_grad()
        images = queries @ parameters[0].mT if len(parameters) == 1 else (queries @ parameters[1]) @ parameters[0].mT
        logits = (tokens @ images.unsqueeze(-1)).squeeze(-1)
        pooled = (torch.softmax(logits, dim=-1).unsqueeze(-2) @ tokens).squeeze(-2)
        outputs = pooled @ head if units is None else torch.relu(pooled @ units.mT).sum(dim=-1)
        torch.nn.functional.softplus(-labels * outputs).mean().backward()
        with torch.no_grad():
            if p == 2:
                for parameter in parameters:
                    parameter.grad /= parameter.grad.norm()
                optimizer.step()
            else:
                for parameter in parameters:
                    gradient = parameter.grad / parameter.grad.abs().pow(q).sum().pow(1 / q)
                    mirror = parameter.sign() * parameter.abs().pow(p - 1) - STEP * gradient
                    parameter.copy_(mirror.sign() * mirror.abs().pow(1 / (p - 1)))
    product = parameters[0] if len(parameters) == 1 else parameters[0] @ parameters[1].mT
    return product.detach().numpy()


FACTORS = "(K, Q), each normalised"
HIDDEN = np.random.default_rng(7).standard_normal((10, 10))

WAYS = (
    Way(
        "W, normalised GD",
        lambda problem, starts, steps, **record: attsvm.train(problem, init=starts[0], steps=steps, **record),
        torch_loop,
        1,
        250,
        60,
    ),
    Way(
        FACTORS,
        lambda problem, starts, steps, **record: attsvm.train(
            problem,
            attention="factored",
            optimizer=optimizers.normalized_gradient_descent(STEP, scope="each"),
            init=tuple(starts),
            steps=steps,
            **record,
        ),
        torch_loop,
        2,
        200,
        50,
    ),
    Way(
        f"W, mirror descent p = {P}",
        lambda problem, starts, steps, **record: attsvm.train(
            problem,
            optimizer=optimizers.mirror_descent(learning_rate=STEP, p=P),
            init=starts[0],
            steps=steps,
            **record,
        ),
        lambda problem, starts, steps: torch_loop(problem, starts, steps, p=P),
        1,
        150,
        50,
    ),
    Way(
        "W, ReLU head of 10 units",
        lambda problem, starts, steps, **record: attsvm.train(
            problem, head=heads.MLP(HIDDEN), init=starts[0], steps=steps, **record
        ),
        lambda problem, starts, steps: torch_loop(problem, starts, steps, hidden=HIDDEN),
        1,
        100,
        50,
    ),
)


def seconds(action: Callable[[], Any], repeats: int, at_least: float = 0.0) -> float:
    """Shortest of several runs, which together take at least ``at_least`` seconds."""
    best, total, done = np.inf, 0.0, 0
    while done < repeats or total < at_least:
        begin = time.perf_counter()
        action()
        took = time.perf_counter() - begin
        best, total, done = min(best, took), total + took, done + 1
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=num_threads(), help="number of cores for each side")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--own", action="store_true", help="time this library alone")
    arguments = parser.parse_args()
    if arguments.own:
        own(arguments.repeats)
        return
    os.environ["ATTSVM_THREADS"] = str(arguments.threads)
    problems = random_problem(6, 8, 10, seed=0, batch=(TRIALS,))
    generator = np.random.default_rng(0)
    print(f"{platform.processor() or platform.machine()}, {num_threads()} threads; torch {torch.__version__}")
    required = ", ".join(f"{way.name} {way.alone:.0f} and {way.together:.0f}" for way in WAYS)
    print(f"n = 6, T = 8, d = 10, float64, {STEPS:,} steps; ratios to PyTorch that are required: {required}\n")
    of_trial: dict[str, float] = {}
    print(
        f"| µs a step and trial | PyTorch | alone | ratio | {TRIALS:,} trials | ratio | compiling, s | difference |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for way in WAYS:
        starts = [generator.standard_normal((TRIALS, 10, 10)) for _ in range(way.starts)]
        one = [start[0] for start in starts]

        def alone(steps: int = STEPS, way: Way = way, one: list[np.ndarray] = one) -> attsvm.Run:
            return way.ours(problems[0], one, steps)

        def together(steps: int = STEPS, way: Way = way, starts: list[np.ndarray] = starts) -> attsvm.Run:
            return way.ours(problems, starts, steps)

        def peer(steps: int = STEPS, way: Way = way, one: list[np.ndarray] = one) -> np.ndarray:
            return way.peer(problems[0], one, steps)

        compiling = seconds(alone, 1) + seconds(lambda: together(1), 1)
        torch.set_num_threads(1)
        difference = np.abs(alone(AGREE_AFTER).weights - peer(AGREE_AFTER)).max()
        if not difference <= AGREE_TO:
            raise SystemExit(f"{way.name}: the two sides differ by {difference:.1e} after {AGREE_AFTER} steps")
        begin = time.perf_counter()
        slow = min(seconds(peer, arguments.repeats) for _ in _thread_counts(arguments.threads)) / STEPS
        # each side runs for the same time, so that neither has more chances of a fast run
        fast = seconds(alone, arguments.repeats, time.perf_counter() - begin) / STEPS
        many = of_trial[way.name] = seconds(together, arguments.repeats) / STEPS / TRIALS
        print(
            f"| {way.name} | {1e6 * slow:.1f} | {1e6 * fast:.2f} | {slow / fast:.0f}× | {1e6 * many:.3f} | "
            f"{slow / many:.0f}× | {compiling:.1f} | {difference:.0e} |",
            flush=True,
        )
    spectral = spectral_seconds(problems, arguments.repeats)
    print(f"\n(K, Q), spectral step: {1e6 * spectral:.3f} us, {spectral / of_trial[FACTORS]:.1f} gradient steps (3)")


def own(repeats: int) -> None:
    """Processor time of a step and trial on one core: that of a call less that of a call of two steps."""
    os.environ["ATTSVM_THREADS"] = "1"
    problems = random_problem(6, 8, 10, seed=0, batch=(TRIALS,))
    generator = np.random.default_rng(0)
    print("processor time of a step and trial on one core\n")
    print(f"| training | alone, µs | {TRIALS:,} trials, µs a trial |\n| --- | ---: | ---: |")

    def spectral(problem: attsvm.Problem, starts: list[np.ndarray], steps: int, record: int) -> attsvm.Run:
        optimizer = optimizers.spectral_descent()
        return attsvm.train(
            problem, attention="factored", init=tuple(starts), optimizer=optimizer, steps=steps, record=record
        )

    ways = [(way.name, way.starts, way.ours) for way in WAYS] + [("(K, Q), spectral", 2, spectral)]
    for name, number, train in ways:
        starts = [generator.standard_normal((TRIALS, 10, 10)) for _ in range(number)]
        cells = []
        for problem, start in ((problems[0], [x[0] for x in starts]), (problems, starts)):
            trials = max(1, int(np.prod(problem.batch_shape, dtype=int)))
            run = partial(train, problem, start, record=1)
            cells.append(1e6 * seconds_of_step(run, repeats=repeats, clock=time.process_time) / trials)
        print(f"| {name} | {cells[0]:.2f} | {cells[1]:.3f} |", flush=True)


def spectral_seconds(problems: attsvm.Problem, repeats: int) -> float:
    """Time of a step and trial of all problems together."""

    def action(steps: int = STEPS // 10) -> attsvm.Run:
        return attsvm.train(problems, attention="factored", optimizer=optimizers.spectral_descent(), steps=steps)

    action(1)
    return seconds(action, repeats) / (STEPS // 10) / TRIALS


def _thread_counts(most: int):
    for count in sorted({1, most}):
        torch.set_num_threads(count)
        yield count


if __name__ == "__main__":
    main()
