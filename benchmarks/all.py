"""Run every benchmark with the commands that the documentation names, and renew the tables that they print.

    python benchmarks/all.py [--list] [PART ...]      # with PART, the commands that contain one of these

The commands are those of docs/notes and docs/guide, as they stand there. What a command prints is kept in a file of
out/benchmarks, and a command whose file is newer than its script is left out, so an interrupted call goes on where it
stopped. A printed table replaces the one table of these pages that has the same columns and as many rows; other tables,
and the text around them, are to be compared by hand. Commands that need data or a GPU are listed, and not run.
"""

import argparse
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs/notes").glob("*.md"), *(ROOT / "docs/guide").glob("*.md")])
OUT = ROOT / "out/benchmarks"
COMMAND = re.compile(r"`(?:\.venv/bin/)?(python\s+benchmarks/[^`]*)`|^(python benchmarks/[^#\n]*)", re.MULTILINE)
TABLE = re.compile(r"^\|.*\|\n\|(?: *:?-+:? *\|)+\n(?:\|.*\|\n)*", re.MULTILINE)
NEEDS = re.compile(r"\b[A-Z]{3,}\b|\.csv|cuda|/data/")  # a placeholder, a file of data, a GPU


def commands() -> list[str]:
    """The documented commands of the scripts that are still here."""
    found = [one or two for page in PAGES for one, two in COMMAND.findall(page.read_text(encoding="utf-8"))]
    lines = dict.fromkeys(" ".join(command.split()) for command in found)
    return [line for line in lines if (ROOT / line.split()[1]).exists()]


def output_of(command: str) -> Path:
    """Where what the command prints is kept."""
    return OUT / f"{re.sub(r'[^A-Za-z0-9.]+', '_', command.removeprefix('python benchmarks/')).strip('_')}.txt"


def is_done(command: str) -> bool:
    """Whether the command has been run since its script was changed."""
    kept = output_of(command)
    return kept.exists() and kept.stat().st_mtime > (ROOT / command.split()[1]).stat().st_mtime


def run(command: str) -> bool:
    """Run a command, show what it prints, and keep it if it ends well."""
    kept = output_of(command)
    unfinished = kept.with_suffix(".unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        words = [sys.executable, *shlex.split(command)[1:]]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for line in process.stdout or ():
            print(line, end="", flush=True)
            file.write(line)
        if process.wait() == 0:
            unfinished.rename(kept)
    return process.returncode == 0


def header(table: str) -> tuple[str, ...]:
    """The names of the columns."""
    return tuple(cell.strip() for cell in table.splitlines()[0].strip("|").split("|"))


def alike(one: str, other: str) -> bool:
    """Whether two tables have the same columns and as many rows."""
    return header(one) == header(other) and one.count("\n") == other.count("\n")


def renewed(printed: str) -> Iterator[str]:
    """Put printed tables into the pages; what was done for each."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    tables = TABLE.findall(printed + "\n")
    for table in tables:
        places = [(page, old) for page in PAGES for old in TABLE.findall(texts[page]) if alike(old, table)]
        names = " | ".join(header(table))
        printed_alike = sum(alike(other, table) for other in tables)
        if len(places) != 1 or printed_alike != 1:
            yield f"compare by hand ({printed_alike} printed, {len(places)} in the docs): {names}"
            continue
        page, old = places[0]
        texts[page] = texts[page].replace(old, table)
        page.write_text(texts[page], encoding="utf-8")
        yield f"renewed in {page.relative_to(ROOT)}: {names}"


def main() -> int:
    """Run what is left to do; 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--list", action="store_true", help="say what would be run, and run nothing")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    failed = False
    for command in commands():
        if options.parts and not any(part in command for part in options.parts):
            continue
        state = "needs data or a GPU" if NEEDS.search(command) else "done" if is_done(command) else "to run"
        print(f"{state}: {command}", flush=True)
        if options.list or state != "to run":
            continue
        began = time.perf_counter()
        if run(command):
            print(
                f"took {time.perf_counter() - began:.0f} s", *renewed(output_of(command).read_text("utf-8")), sep="\n"
            )
        else:
            failed = True
            print(f"failed: {command}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
