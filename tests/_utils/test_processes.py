"""Calls side by side: their results come in order, and a signal ends them without a word."""

import math
import signal
import subprocess
import sys

from attsvm._utils.processes import side_by_side


def test_results_are_in_the_order_of_the_calls():
    calls = [(float(number),) for number in range(6)]
    assert list(side_by_side(math.sqrt, calls, 2)) == [math.sqrt(*arguments) for arguments in calls]


WAITING = """
import math, time
from attsvm._utils.processes import side_by_side
for result in side_by_side(time.sleep, [(0,), (60,), (60,)], 2):
    print("one is done", flush=True)
"""


def test_trackers_and_workers_of_a_terminated_process_end_silently():
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "one is done\n"
    process.send_signal(signal.SIGTERM)
    # the end of the output is the end of the workers and trackers, which share it
    assert process.communicate(timeout=20) == ("", "")
