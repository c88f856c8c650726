"""A sweep in the memory of this process, without Dask, xarray and zarr."""

import numpy as np

from attsvm._utils.jax_devices import find_device, on_device
from attsvm.sweeps.definition import Definition
from attsvm.sweeps.store import Task
from attsvm.sweeps.work import compute, one_thread
from attsvm.training.engine.trials import num_threads, workers


def measured(definition: Definition, device: str | None = None) -> dict[str, np.ndarray]:
    """Compute a sweep in this process, its cells side by side on all cores. No extra is needed.

    Parameters
    ----------
    definition : Definition
    device : str, optional
        As for :func:`attsvm.train`.

    Returns
    -------
    dict of str to ndarray
        An array (*grid, trials, ...) for each output, with the bits that :func:`attsvm.sweep` stores.

    Raises
    ------
    ProblemError
        If there is no such device.

    See Also
    --------
    attsvm.sweep : Stores what it computes.

    Examples
    --------
    >>> from attsvm.sweeps import Definition, measured
    >>> measured(Definition({"dim": [2, 5]}, ["feasible"], trials=40))["feasible"].mean(axis=1)
    array([0.225, 1.   ])
    """
    home = find_device(device)

    def compute_there(task: Task) -> dict[str, np.ndarray]:
        with on_device(home):  # of this thread
            return compute(definition, task)

    tasks = [Task(cell, 0, definition.trials) for cell in range(definition.num_cells)]
    number = min(num_threads(), len(tasks))
    with one_thread(), workers(number) as spread:
        # values are mostly given from small to large: the longest cells first, so that the threads end together
        cells = spread(compute_there, tasks[::-1])[::-1]
    return {
        name: np.stack([cell[name] for cell in cells]).reshape(*definition.shape, *array.shape)
        for name, array in cells[0].items()
    }
