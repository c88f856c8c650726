"""Seconds that `import attsvm` takes in a fresh interpreter, best of five, after one to warm the disk cache."""

import subprocess
import sys

TIMER = "import time; start = time.perf_counter(); import attsvm; print(time.perf_counter() - start)"


def main() -> None:
    seconds = [float(subprocess.check_output([sys.executable, "-c", TIMER])) for _ in range(6)][1:]
    print(f"import attsvm: {min(seconds):.2f} s (best of five, warm)")


if __name__ == "__main__":
    main()
