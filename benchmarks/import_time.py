"""Processor seconds that it takes to start: `import attsvm`, `attsvm --help`, `attsvm --version`; best of five."""

import os
import subprocess
import sys

STARTS = {
    "python -c pass": ["-c", "pass"],
    "import attsvm": ["-c", "import attsvm"],
    "attsvm --version": ["-m", "attsvm", "--version"],
    "attsvm --help": ["-m", "attsvm", "--help"],
}


def processor_seconds(arguments: list[str]) -> float:
    """User and system time of one fresh interpreter."""
    before = os.times()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    print("processor seconds, best of five after one that warms the disk cache")
    for name, arguments in STARTS.items():
        seconds = [processor_seconds(arguments) for _ in range(6)][1:]
        print(f"{name:<18}{min(seconds):6.2f}")


if __name__ == "__main__":
    main()
