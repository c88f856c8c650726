"""The job that the guide's recipe for SLURM submits."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sweeps.md"


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
