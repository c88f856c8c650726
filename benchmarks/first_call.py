"""Processor seconds until a first training has ended, with an empty and a filled compilation cache of JAX.

Every row is a process of its own, and the least of the rounds. The ratio is to importing JAX and optax alone.
`python benchmarks/first_call.py [ROUNDS]`
"""

import os
import subprocess
import sys
import tempfile

TRAINING = (
    "import attsvm; problem = attsvm.datasets.random_problem(6, 8, 10, seed=0); attsvm.train(problem, steps=2000)"
)
MEASURED = """
import time
{first}
before = time.process_time()
{then}
print(time.process_time() - before if {alone} else time.process_time())
"""
SECOND = {
    "the same again": "attsvm.train(problem, steps=2000)",
    "another shape": "attsvm.train(attsvm.datasets.random_problem(7, 8, 10, seed=0), steps=2000)",
    "mirror descent": "attsvm.train(problem, optimizer=attsvm.optimizers.mirror_descent(p=3), steps=2000)",
    "Adam": "attsvm.train(problem, optimizer=attsvm.optimizers.adam(), steps=2000)",
    "keys and queries": "attsvm.train(problem, attention='factored', steps=2000)",
    "a classifier": "attsvm.AttentionClassifier().fit(list(problem.tokens), problem.labels)",
    "a Lipschitz constant": "attsvm.theory.lipschitz_constant(problem)",
}


def seconds(first: str, then: str, folder: str, *, alone: bool = False, enabled: bool = True) -> float:
    """Of the whole process, or of ``then`` alone."""
    code = MEASURED.format(first=first, then=then, alone=alone)
    # with the bytecode that an installed package has
    settings = {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_ENABLE_COMPILATION_CACHE": str(enabled),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    made = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | settings, check=True, capture_output=True, text=True
    )
    return float(made.stdout)


def measured() -> dict[str, float]:
    """One round."""
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "import jax, optax": seconds("", "import jax, optax", folder),
            "import attsvm, attsvm.train": seconds("", "import attsvm; attsvm.train", folder),
            "import and first train, cache off": seconds("", TRAINING, folder, enabled=False),
            "import and first train, cold": seconds("", TRAINING, folder),
            "import and first train, warm": seconds("", TRAINING, folder),
        }
        for state in ("cold", "warm"):
            for name, then in SECOND.items():
                found[f"then {name}, {state}"] = seconds(TRAINING, then, folder, alone=True)
    return found


def main() -> None:
    rounds = [measured() for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)]
    least = {name: min(found[name] for found in rounds) for name in rounds[0]}
    base = least["import jax, optax"]
    print(f"{'processor seconds':<36}{'':>8}{'ratio':>8}")
    for name, each in least.items():
        print(f"{name:<36}{each:8.2f}{each / base:8.2f}")


if __name__ == "__main__":
    main()
