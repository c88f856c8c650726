"""Time of training, of optimizers and of inspection on a device, compared with the CPU.

    python benchmarks/devices.py --device cuda            # the table of the notes, with the device's name
    python benchmarks/devices.py --device cpu --quick     # small sizes: whether everything runs

Each entry is measured in a process of its own, on the device and on the CPU, in float64 and float32. The results are
kept in a file, and a later call continues. The Att-SVM solvers run on the CPU only.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cases import Case, markdown, measured, run
from timing import seconds_of_step

TRAINING = {
    False: [(6, 8, 10, trials) for trials in (10**3, 10**4, 10**5, 10**6)] + [(512, 256, 512, 1)],
    True: [(6, 8, 10, 100), (16, 32, 32, 1)],
}
SOLVES = {False: [(512, 256, 512)], True: [(16, 16, 32)]}
PARAMETERS = {False: 1024, True: 128}
"""Rows and columns of each of nine matrices."""

OPTIMIZERS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "torch.optim.Adam(fused)": lambda torch, x: torch.optim.Adam(x, lr=1e-6, fused=True),
    "MirrorDescent p=1.1": lambda torch, x: _ours().MirrorDescent(x, lr=1e-6, p=1.1, compiled=True),
    "MirrorDescent p=1.75": lambda torch, x: _ours().MirrorDescent(x, lr=1e-6, p=1.75, compiled=True),
    "torch.optim.Muon": lambda torch, x: torch.optim.Muon(x, lr=1e-6, momentum=0.95, weight_decay=0.1),
    "SpectralDescent": lambda torch, x: _ours().SpectralDescent(
        x, lr=1e-6, iterations=5, dtype=torch.bfloat16, momentum=0.95, nesterov=True, weight_decay=0.1
    ),
}


def _ours() -> Any:
    import attsvm.torch

    return attsvm.torch


def entries(device: str, quick: bool) -> list[Case]:
    """What is measured: each on the device, and on the CPU."""
    places = list(dict.fromkeys([device, "cpu"]))
    common = [{"device": place, "dtype": dtype} for place in places for dtype in ("float64", "float32")]
    found: list[Case] = [{"kind": "train", "size": list(size), **one} for size in TRAINING[quick] for one in common]
    found += [
        {"kind": "optimizer", "name": name, "width": PARAMETERS[quick], **one} for name in OPTIMIZERS for one in common
    ]
    found += [{"kind": "inspect", "width": 64, **one} for one in common]
    return found + [{"kind": "solve", "size": list(s), "device": "cpu", "dtype": "float64"} for s in SOLVES[quick]]


def measure(case: Case) -> dict[str, Any]:
    """Seconds of a step, or of an inspection or a solve, in this process."""
    return {"seconds": KINDS[case["kind"]](case), "name": device_name(case)}


def device_name(case: Case) -> str:
    """The name that the driver gives the device."""
    if case["device"] == "cpu":
        return "cpu"
    if case["kind"] == "train":
        import jax

        return str(jax.devices("gpu")[0].device_kind)
    import torch

    return str(torch.cuda.get_device_name())


def _problem(n: int, T: int, d: int) -> Any:
    import attsvm

    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((n, T, d))
    return attsvm.Problem(tokens, rng.choice([-1, 1], n), tokens[:, 0], rng.standard_normal(d))


def _train(case: Case) -> float:
    import attsvm

    n, T, d, trials = case["size"]
    problem, init = _problem(n, T, d), 0.01 * np.random.default_rng(1).standard_normal((trials, d, d))
    where = {"device": case["device"], "dtype": case["dtype"]}
    return seconds_of_step(lambda steps: attsvm.train(problem, init=init, steps=steps, record=[steps], **where))


def _optimizer(case: Case) -> float:
    import torch

    dtype, width, device = getattr(torch, case["dtype"]), case["width"], case["device"]
    parameters = [torch.nn.Parameter(torch.randn(width, width, dtype=dtype, device=device)) for _ in range(9)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = OPTIMIZERS[case["name"]](torch, parameters)

    def steps_of(number: int) -> None:
        for _ in range(number):
            optimizer.step()
        if parameters[0].is_cuda:
            torch.cuda.synchronize()

    return seconds_of_step(steps_of)


def _inspect(case: Case) -> float:
    import torch

    import attsvm.torch

    torch.manual_seed(0)
    where = {"dtype": getattr(torch, case["dtype"]), "device": case["device"]}
    attention = torch.nn.MultiheadAttention(case["width"], 4, batch_first=True, **where)
    tokens = torch.randn(8, 16, case["width"], **where)
    began = time.perf_counter()
    attsvm.inspect.inspect(attention, (tokens, tokens, tokens), margins=False)
    return time.perf_counter() - began


def _solve(case: Case) -> float:
    import attsvm

    problem = _problem(*case["size"])
    began = time.perf_counter()
    attsvm.solve_svm(problem, attsvm.optimal_tokens(problem), tol=1e-6)
    return time.perf_counter() - began


KINDS: dict[str, Callable[[Case], float]] = {
    "train": _train,
    "optimizer": _optimizer,
    "inspect": _inspect,
    "solve": _solve,
}


def report(rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    lines = []
    for row in rows:
        case = row["case"]
        what = " ".join(str(case[name]) for name in ("kind", "name", "size", "width") if name in case)
        taken = row["error"] if "error" in row else f"{1e3 * row['seconds']:.4g}"
        lines.append([what, case["dtype"], row.get("name", case["device"]), taken])
    print(markdown(["", "dtype", "device", "ms"], lines))


def main() -> None:
    """Measure the entries that are not known yet, and print all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:1")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = run(__file__, __doc__, parser, measure)
    cases = entries(options.device, options.quick)
    report(measured(__file__, cases, options.results, options.seconds, options.threads))


if __name__ == "__main__":
    main()
