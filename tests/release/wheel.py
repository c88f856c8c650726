"""Install the wheel into fresh environments outside the checkout, and use it there as the README says.

    python tests/release/wheel.py          # the library; added to it torch and inspect; and PyTorch without JAX
    python tests/release/wheel.py --all    # and each extra of users alone

The wheel is built from the source archive. An extra is used for what it promises, and where it is missing one line must
name the command that installs it.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
TORCH = "torch==2.13.*"  # with which the tests are run
DIGITS = re.compile(r"\d[\d,.]*(e[-+]\d+)?")

COMMANDS = (
    "attsvm fit digits --classes 3,8 --draws 1 --out digits",
    "attsvm reproduce limit --quick --out reproduced",
    "attsvm playground --help",
)

RUN = "import attsvm; problem = attsvm.datasets.random_problem(3, 4, 5); run = attsvm.train(problem, steps=10); "
SWEEP = "import attsvm; attsvm.sweep({'dim': [2, 4]}, ['feasible'], trials=3, store='swept', workers="
PARQUET = """
import pyarrow, pyarrow.parquet
texts = [f"the film number {i} is {'good' if i % 2 else 'bad'} and long" for i in range(80)]
table = pyarrow.table({"text": texts, "label": ["pos" if i % 2 else "neg" for i in range(80)]})
pyarrow.parquet.write_table(table, "reviews.parquet")
"""
GPT = """
import torch, transformers, attsvm
model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=20))
found = attsvm.inspect.inspect(model, {"input_ids": torch.arange(12).reshape(2, 6)})
assert found.measure("margin_ratio").shape == (1, 2)
"""
MIRROR = """
import torch, attsvm.torch
weights = torch.nn.Parameter(torch.ones(2, 3))
weights.grad = torch.ones(2, 3)
attsvm.torch.MirrorDescent([weights], lr=0.1).step()
assert (weights < 1).all()
"""

OPTIMIZERS = ("numpy", "lazy_loader", TORCH)  # all that attsvm.torch needs

# what each extra promises: Python code, or commands
PROMISES = {
    "torch": (
        MIRROR,
        "attsvm profile torch.optim.SGD --learning-rate 0.1 --seeds 1 --steps 20 --norm frobenius --norm linf",
    ),
    "inspect": (MIRROR, GPT, "import tokenizers, safetensors, huggingface_hub"),
    "papers": (MIRROR, "import accelerate, datasets, pyarrow, PIL, tensorboard", "attsvm experiment --help"),
    "text": (PARQUET, "attsvm fit-text reviews.parquet --steps 20 --min-documents 1 --out texts"),
    "sweep": (SWEEP + "1)", "attsvm sweep --list"),
    "frames": (RUN + "run.to_frame(); run.to_xarray()",),
}
# what needs an extra that is missing, and the packages that it may name
NEEDS = {
    "torch": ("import attsvm.torch", "attsvm profile torch.optim.Adam"),
    "inspect": ("attsvm inspect model --text lines.txt", "attsvm compare model model --text lines.txt"),
    "papers": ("attsvm experiment imdb --data reviews --out experiment",),
    "text": ("attsvm fit-text empty.parquet", "attsvm next-token empty.parquet"),
    "sweep": (SWEEP + "0)", "attsvm sweep phase-feasible --out swept"),
    "frames": (RUN + "run.to_frame()", RUN + "run.to_xarray()"),
}


class Environment:
    """A virtual environment in a folder, and a folder beside it in which its commands run."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.work = folder / "environment" / "bin", folder / "work"
        subprocess.run([sys.executable, "-m", "venv", self.bin.parent], check=True)
        (self.work / "model").mkdir(parents=True)
        (self.work / "model" / "config.json").write_text("{}")
        (self.work / "lines.txt").write_text("one line\n")
        (self.work / "empty.parquet").touch()

    def install(self, *requirements: str) -> None:
        timed(f"pip install {' '.join(requirements)}", [self.bin / "pip", "install", "--quiet", *requirements])

    def run(self, what: str) -> subprocess.CompletedProcess[str]:
        """Run a command, or Python code, away from the checkout and without its environment variables."""
        words = what.split() if what.startswith("attsvm ") else ["python", "-W", "ignore", "-c", what]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        command = [self.bin / words[0], *words[1:]]
        return subprocess.run(command, cwd=self.work, env=kept, capture_output=True, text=True, check=False)

    def works(self, what: str) -> str:
        began = time.perf_counter()
        done = self.run(what)
        assert done.returncode == 0, f"{what}\n{done.stdout}\n{done.stderr}"
        report(what, began)
        return done.stdout

    def names_the_extra(self, what: str, extra: str) -> None:
        began = time.perf_counter()
        done = self.run(what)
        lines = done.stderr.splitlines()
        assert done.returncode, f"{what} works without the extra {extra}"
        assert lines[-1].endswith(f"pip install 'attsvm[{extra}]'"), f"{what}\n{done.stderr}"
        assert len(lines) == 1 or not what.startswith("attsvm "), f"{what}\n{done.stderr}"
        report(f"without {extra}: {what}", began)


def timed(name: str, command: list[object]) -> None:
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, f"{name}\n{done.stdout}"
    report(name, began)


def report(name: str, began: float) -> None:
    print(f"{time.perf_counter() - began:5.1f} s  {' '.join(name.split())[:100]}", flush=True)


def build(folder: Path) -> Path:
    """Build the source archive and from it the wheel, which must have the files of the package and no others."""
    timed("build", [sys.executable, "-m", "build", "--outdir", folder, ROOT])
    (wheel,) = folder.glob("*.whl")
    kept = subprocess.run(["git", "ls-files", "src/attsvm"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {line.removeprefix("src/") for line in kept.stdout.splitlines() if (ROOT / line).exists()}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("attsvm/")}
    assert packed == tracked, f"wheel and sources differ: {sorted(packed ^ tracked)}"
    return wheel


def readme_example() -> tuple[str, str]:
    """The first example of the README, and what it prints there."""
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    return found[1], found[2]


def main(all_extras: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="attsvm-wheel-") as name:
        folder = Path(name)
        wheel = build(folder / "dist")
        base = Environment(folder / "base")
        base.install(str(wheel))
        assert base.works("attsvm --version") == f"attsvm {wheel.name.split('-')[1]}\n"
        for command in COMMANDS:
            base.works(command)
        code, printed = readme_example()
        assert DIGITS.sub("#", base.works(code)) == DIGITS.sub("#", printed)
        for extra, uses in NEEDS.items():
            for what in uses:
                base.names_the_extra(what, extra)
        for extra in ("torch", "inspect"):
            base.install(f"{wheel}[{extra}]", TORCH)
            for what in PROMISES[extra]:
                base.works(what)
            if extra == "torch":
                for what in NEEDS["inspect"]:
                    base.names_the_extra(what, "inspect")
        optimizers = Environment(folder / "optimizers")
        optimizers.install(*OPTIMIZERS)
        optimizers.install("--no-deps", str(wheel))
        optimizers.works(MIRROR)
        assert optimizers.run("import jax").returncode, "JAX is installed with PyTorch"
        for extra in PROMISES if all_extras else ():
            alone = Environment(folder / extra)
            alone.install(f"{wheel}[{extra}]", *([TORCH] if extra in ("torch", "inspect", "papers") else []))
            for what in PROMISES[extra]:
                alone.works(what)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="each extra alone, too")
    main(parser.parse_args().all)
