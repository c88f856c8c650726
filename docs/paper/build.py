"""Build the report on what training does to attention: a PDF from report.typ and the results beside it.

    python docs/paper/build.py [--fresh] [--out build/paper]

The results are kept in the repository with their hashes. ``--fresh`` measures them again, which takes about six
minutes on two cores; finished pieces are kept in the folder of ``--out``, so that an interrupted call goes on.
"""

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import typst

FIGURES = (
    "limit", "normalised-descent", "optimizer-norms", "factored-optimizers", "rank", "multi-head", "step-length",
    "weight-decay", "adamw-epsilon", "mini-batches", "layers", "layouts", "classes", "attention-today",
    "earliest-selection", "leave-one-out",
)  # fmt: skip
HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
HASHES = "SHA256SUMS"


def measure(folder: Path) -> None:
    """Run every figure at full size, and keep what the report reads of it."""
    command = [str(Path(sys.executable).with_name("attsvm")), "reproduce", *FIGURES, "--out", str(folder)]
    if subprocess.run(command, check=False).returncode:  # a claim that does not hold is no failure
        raise SystemExit("paper: the figures were not measured; call it again to go on")
    RESULTS.mkdir(exist_ok=True)
    for name in FIGURES:
        result = json.loads((folder / f"{name}.json").read_text())
        del result["measured"]  # the arrays are drawn in the picture
        result["command"] = f"attsvm reproduce {name}"
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        shutil.copyfile(folder / f"{name}.svg", RESULTS / f"{name}.svg")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("numpy", "jax", "optax"))
    about = {
        "version": version("attsvm"),
        "device": "a CPU",
        "versions": f"Python {platform.python_version()}, {libraries}",
    }
    (RESULTS / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    (RESULTS / HASHES).write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(digests().items())))


def digests() -> dict[str, str]:
    files = [path for path in RESULTS.iterdir() if path.suffix in (".json", ".svg")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def changed() -> list[str]:
    """Names of results that are not what a measurement wrote."""
    lines = (RESULTS / HASHES).read_text(encoding="utf-8").splitlines()
    written = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = digests()
    return sorted(name for name in written.keys() | found.keys() if written.get(name) != found.get(name))


def build(pdf: Path) -> None:
    if wrong := changed():
        raise SystemExit(f"paper: not as measured: {', '.join(wrong)}; measure them again: make paper FRESH=1")
    pdf.parent.mkdir(parents=True, exist_ok=True)
    typst.compile(HERE / "report.typ", output=pdf, root=HERE.parents[1])
    print(pdf)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="measure the results again")
    parser.add_argument("--out", type=Path, default=Path("build/paper"))
    options = parser.parse_args()
    if options.fresh:
        measure(options.out / "figures")
    build(options.out / "attsvm.pdf")
