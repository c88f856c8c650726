"""Calls side by side: their results come in order, and workers end with the process that started them."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest

from attsvm import ProblemError
from attsvm._utils.checks import check_integer
from attsvm._utils.workers import _IDLE_TOO_LONG, _Worker, side_by_side


def test_results_are_in_the_order_of_the_calls():
    calls = [(float(number),) for number in range(6)]
    assert list(side_by_side(math.sqrt, calls, 2)) == [math.sqrt(*arguments) for arguments in calls]


def test_workers_are_used_again_and_calls_are_read_when_one_is_free():
    pids: set[int] = set()
    for _ in range(50):  # one worker can be fast enough for all calls
        pids |= {*side_by_side(os.getpid, [()] * 6, 2)}
    assert len(pids) == 2
    read = []

    def calls():
        for number in range(9):
            read.append(number)
            yield ()

    for pid in side_by_side(os.getpid, calls(), 2):
        assert pid in pids
        assert len(read) < 9
        break


def test_an_error_of_a_call_is_raised_and_the_next_calls_are_made():
    calls = [("n", 1), ("n", -1), ("n", 2)]
    with pytest.raises(ProblemError, match="expected an integer >= 0, got -1"):
        list(side_by_side(check_integer, [(*call, 0) for call in calls], 2))
    assert list(side_by_side(math.sqrt, [(4.0,)] * 3, 2)) == [2.0] * 3


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(RuntimeError, match="a worker process ended with status 7"):
        list(side_by_side(os._exit, [(7,)], 2))


IDLE = "from attsvm._utils import workers; workers.SECONDS_IDLE = -1.0"


def test_a_worker_without_calls_ends_with_a_status_of_its_own():
    worker = _Worker()
    worker.send(exec, (IDLE,))
    worker.receive()
    assert worker.process.wait(timeout=60) == _IDLE_TOO_LONG


@pytest.mark.parametrize("read", [0, 1], ids=["before the call is written", "before the call is read"])
def test_a_worker_that_ends_while_a_call_is_sent_is_replaced(read, monkeypatch):
    worker = _Worker()
    worker.process.kill()
    code = f"import sys; sys.stdin.buffer.read({read}); sys.exit({_IDLE_TOO_LONG})"
    idle = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if not read:
        idle.wait()
    monkeypatch.setattr(idle, "poll", lambda: None)  # it is running when it is looked at
    worker.process = idle
    worker.send(math.sqrt, (4.0,))
    assert worker.receive() == 2.0
    worker.process.kill()


WAITING = """
import time
from attsvm._utils.workers import side_by_side
for result in side_by_side(time.sleep, [(0,), (60,), (60,)], 2):
    print("one is done", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_of_a_process_that_ends_in_any_way_end_silently(number):
    # a shell's background jobs ignore Ctrl-C, and so would the tests run in one
    listening = "import signal; signal.signal(2, signal.default_int_handler)"
    process = subprocess.Popen(
        [sys.executable, "-c", listening + WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "one is done\n"
    process.send_signal(number)
    began = time.monotonic()
    # the end of the output is the end of the workers, which share it
    stdout, stderr = process.communicate(timeout=20)
    assert time.monotonic() - began < 10
    assert stdout == ""
    assert stderr == "" or (number == signal.SIGINT and stderr.endswith("KeyboardInterrupt\n"))


SLOW_MODULE = """
import os, time
def nothing(): ...
if "SLOW" in os.environ:
    open("begun", "w").close()
    try:
        time.sleep(60)
    except BaseException as error:  # as pybind11 does
        raise ImportError("initialization failed") from error
"""

IMPORTING = """
import os
import slow
from attsvm._utils.workers import side_by_side
os.environ["SLOW"] = "1"  # for the workers alone
list(side_by_side(slow.nothing, [(), ()], 2))
"""


def test_workers_that_are_ended_while_they_import_end_silently(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_MODULE)
    process = subprocess.Popen([sys.executable, "-c", IMPORTING], stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    deadline = time.monotonic() + 20
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == ""


WORKER = """
import sys
import attsvm._utils.workers
print({"jax", "numpy", "torch"} & set(sys.modules))
"""


def test_a_worker_looks_for_its_parent_before_it_imports_anything_slow():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
