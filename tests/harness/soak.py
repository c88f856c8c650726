"""The campaigns in their full size, in parts: ``make soak``, or ``python -m harness.soak solves --minutes 60``.

Each case that has ended is one line of ``out/soak/<campaign>.jsonl``. A later call goes on behind the cases that are
there. A case runs in a process of its own, so that one that crashes or hangs is a failure with a number.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from harness.campaign import Campaign, campaigns

_TESTS = Path(__file__).parents[1]


def main() -> int:
    """Run the campaigns that are named, and print what they found."""
    arguments = _arguments()
    if arguments.worker:
        return _work(campaigns()[arguments.campaigns[0]])
    chosen = campaigns()
    names = arguments.campaigns or list(chosen)
    if unknown := sorted(set(names) - set(chosen)):
        print(f"campaigns: expected some of {', '.join(chosen)}, got {', '.join(unknown)}", file=sys.stderr)
        return 2
    deadline = time.monotonic() + 60 * arguments.minutes
    found = [_soak(chosen[name], arguments, deadline) for name in names]
    return 1 if any(found) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("campaigns", nargs="*", help="their names; all of them by default")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no case after this time")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--first", type=int, default=0, help="the first case, which is its seed")
    parser.add_argument("--again", action="store_true", help="run the cases again that had failures")
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="the folder of the results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _soak(campaign: Campaign, arguments: argparse.Namespace, deadline: float) -> int:
    """Run the cases of a campaign until it has its full size or the time is over; return the number of failures."""
    if (reason := campaign.missing()) is not None:
        print(f"{campaign.name}: left out: {reason}")
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{campaign.name}.jsonl"
    done = _read(path)
    again = [case for case, line in done.items() if line["failures"]] if arguments.again else []
    cases = chain(again, _cases(campaign, arguments.first, done, deadline))
    lock = threading.Lock()

    def serve(worker: _Worker) -> None:
        while True:
            with lock:
                case = next(cases, None)
            if case is None:
                return
            line = worker.run(case)
            with lock, path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
                done[case] = line
                for failure in line["failures"]:
                    print(f"{campaign.name} case {case}: {failure}", flush=True)

    workers = [_Worker(campaign) for _ in range(arguments.workers)]
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:  # after Ctrl-C, too
        for worker in workers:
            worker.stop()
    return _report(campaign, done)


def _cases(campaign: Campaign, first: int, done: dict[int, Any], deadline: float) -> Iterator[int]:
    case = first
    while time.monotonic() < deadline and sum(line["checked"] for line in done.values()) < campaign.full:
        if case not in done:
            yield case
        case += 1


def _report(campaign: Campaign, done: dict[int, Any]) -> int:
    checked = sum(line["checked"] for line in done.values())
    failures = sum(len(line["failures"]) for line in done.values())
    seconds = sum(line["seconds"] for line in done.values())
    print(
        f"{campaign.name}: {checked:,} of {campaign.full:,} {campaign.unit}, {len(done):,} cases, {failures} failures"
    )
    counts: Counter[str] = Counter()
    for line in done.values():
        counts.update(line["counts"])
    if counts:
        print("  " + ", ".join(f"{what} {number:,}" for what, number in counts.most_common()))
    commits = sorted({line["commit"] for line in done.values()})
    print(f"  {seconds / 60:.1f} minutes of work; commits {', '.join(commits)}", flush=True)
    return failures


def _read(path: Path) -> dict[int, Any]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["case"]: line for line in lines}  # the last one counts


class _Worker:
    """A process that runs cases, and a new one when it crashes or hangs."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._commit = _commit()
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def run(self, case: int) -> dict[str, Any]:
        """One line of the results."""
        process = self._process or self._start()
        began = time.monotonic()
        assert process.stdin is not None
        try:
            process.stdin.write(f"{case}\n")
            process.stdin.flush()
            text = self._lines.get(timeout=self._campaign.limit_s)
        except (queue.Empty, OSError):
            text = "" if process.poll() is not None else "hangs"
        if text.startswith("{"):
            line = json.loads(text)
        else:
            code = process.poll()
            why = f"took more than {self._campaign.limit_s:g} s" if text else f"ended its process with status {code}"
            line = {"checked": 1, "failures": [why], "counts": {}}
            self.stop()
        seconds = round(time.monotonic() - began, 3)
        return {"case": case, **line, "seconds": seconds, "commit": self._commit}

    def _start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "harness.soak", "--worker", self._campaign.name]
        # one thread of linear algebra for each process: there are as many of these as cores
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(_TESTS), environment.get("PYTHONPATH", "")])
        self._process = process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lines = lines

        def read() -> None:
            assert process.stdout is not None
            for text in process.stdout:
                lines.put(text)
            process.wait()
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        return process

    def stop(self) -> None:
        """End the process and the commands that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def _work(campaign: Campaign) -> int:
    """Run the cases named on standard input, one line of results each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints is not an answer
    for text in sys.stdin:
        outcome = campaign.check(int(text))
        line = {"checked": outcome.checked, "failures": list(outcome.failures), "counts": dict(outcome.counts)}
        answers.write(json.dumps(line) + "\n")
        answers.flush()
    return 0


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    described = subprocess.run(command, cwd=_TESTS, capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
