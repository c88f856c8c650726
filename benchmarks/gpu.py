"""Everything that needs a GPU: the tests, the table of devices, and the papers' experiments at their sizes.

    python benchmarks/gpu.py [--device cuda:1]

An interrupted call goes on where it stopped: measured entries and checkpoints are kept in out/gpu. The table goes into
docs/notes/large_problems.md. Without a GPU one line says so, and the exit status is 1. The experiments read the data
sets of their tasks from the hub, and take days.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import jax
import torch

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out/gpu"
NOTE = ROOT / "docs/notes/large_problems.md"
PLACE = re.compile(r"(?<=<!-- gpu: begin -->\n).*?(?=<!-- gpu: end -->)", re.DOTALL)
MIRROR = "--optimizer mirror-1.1,mirror-2,mirror-3"
EXPERIMENTS = {
    "imdb-3": f"imdb --preset paper-3 {MIRROR}",
    "imdb-4": f"imdb --preset paper-4 {MIRROR}",
    "imdb-6": f"imdb --preset paper-6 {MIRROR} --compare out/gpu/imdb-3 --compare out/gpu/imdb-4",
    "cifar10": "cifar10 --preset paper --optimizer mirror-1.1,adam",
    "vit-sparsity": "cifar10 --preset vit-sparsity --optimizer adam",
}


def missing() -> str | None:
    """What there is no GPU for."""
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    try:
        jax.devices("gpu")
    except RuntimeError:
        return "JAX finds no GPU: pip install 'jax[cuda13]'"
    return None


def run(*command: object) -> str:
    """Run one part; its standard output is returned, and a failure ends everything."""
    print("+", *command, file=sys.stderr, flush=True)
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Run the three parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:1")
    device = parser.parse_args().device
    reason = missing()
    if reason:
        raise SystemExit(f"gpu: nothing was run, {reason}")
    OUT.mkdir(parents=True, exist_ok=True)
    print(run("-m", "pytest", "-n", "0", "tests/torch/test_cuda.py"))
    name = re.sub(r"\W+", "-", torch.cuda.get_device_name())
    table = run("benchmarks/devices.py", "--device", device, "--results", OUT / f"devices-{name}.jsonl")
    NOTE.write_text(PLACE.sub(lambda _: f"\n{table}\n", NOTE.read_text(encoding="utf-8")), encoding="utf-8")
    for name, options in EXPERIMENTS.items():
        folder = OUT / name
        resume = ["--resume"] if folder.exists() else []
        print(run("-m", "attsvm", "experiment", *options.split(), "--device", device, "--out", folder, *resume))


if __name__ == "__main__":
    main()
