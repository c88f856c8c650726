"""Workers end with the process that started them."""

import subprocess
import sys

WORKER = """
import os, sys, time
from attsvm._utils.interruptions import end_with
end_with(os.getppid())
print({"jax", "numpy", "torch"} & set(sys.modules), flush=True)
time.sleep(60)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_a_worker_of_a_killed_process_ends_and_watches_before_it_imports_anything_slow():
    parent = subprocess.Popen([sys.executable, "-c", PARENT, WORKER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    imported = parent.stdout.readline()
    parent.kill()
    parent.communicate(timeout=10)  # the end of the output is the end of the worker
    assert imported == "set()\n"
