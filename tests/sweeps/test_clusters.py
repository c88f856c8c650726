"""Workers on this machine, and the job that the guide's recipe for SLURM submits."""

import json
import logging
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import attsvm
from attsvm.sweeps.executors import local_cluster

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sweeps.md"


def test_workers_print_neither_the_failure_of_a_chunk_nor_the_end_of_their_scheduler(tmp_path, capfd):
    from distributed import Client

    def fails_in_two_dimensions(problem, run):
        if problem.dim == 2:
            raise ArithmeticError("cannot do two")
        return {"fine": np.zeros(problem.batch_shape)}

    async def loses_its_scheduler(dask_worker):
        def reset(**_):
            raise ConnectionResetError

        kept, dask_worker.scheduler = dask_worker.scheduler, SimpleNamespace(heartbeat_worker=reset)
        await dask_worker.heartbeat()
        dask_worker.scheduler = kept
        logging.getLogger("distributed.worker.state_machine").warning("a call ended with CancelledError")

    with local_cluster(1) as cluster:
        fixed = {"num_sequences": 2, "num_tokens": 2, "steps": 1}
        arguments = {"trials": 8, "fixed": fixed, "scheduler": cluster.scheduler_address}
        with pytest.warns(RuntimeWarning, match="1 chunk failed, the first one with ArithmeticError: cannot do two"):
            found = attsvm.sweep({"dim": [2, 3]}, [fails_in_two_dimensions], store=tmp_path / "store", **arguments)
        with Client(cluster) as client:
            client.run(loses_its_scheduler)
            [blocked] = client.run(signal.pthread_sigmask, signal.SIG_BLOCK, []).values()
            assert signal.SIGINT in blocked, "Ctrl-C ends them through this process"
    [error] = json.loads(found.attrs["errors"])
    assert error["attempts"] == 3
    assert "in fails_in_two_dimensions\n" in error["traceback"], "where it failed"
    assert error["traceback"].endswith("ArithmeticError: cannot do two\n")
    assert found.done.values.all(axis=1).tolist() == [False, True]
    printed = capfd.readouterr().err
    assert "Traceback" not in printed
    assert "Compute Failed" not in printed
    assert "CancelledError" not in printed


def test_the_recipe_for_slurm_starts_one_thread_for_each_core():
    from dask_jobqueue import SLURMCluster

    [arguments] = re.findall(r"SLURMCluster\((.*)\)", GUIDE.read_text())
    given = eval(f"dict({arguments})")  # the arguments as they are printed in the guide
    with SLURMCluster(**given, scheduler_options={"dashboard_address": ":0"}) as cluster:
        script = cluster.job_script()
        assert f" {cluster.scheduler_address} " in script
    assert "--nthreads 1 " in script
    assert "--nworkers 16 " in script
    assert "#SBATCH --cpus-per-task=16\n" in script
    assert "#SBATCH -t 04:00:00\n" in script
