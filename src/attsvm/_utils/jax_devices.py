"""The devices of JAX, by name, and the compiler options that suit them."""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import jax

from attsvm._utils.devices import parse_device
from attsvm._utils.memory import free_memory


def find_device(name: str | None) -> jax.Device:
    """Return JAX's device of a name; its default device if there is no name."""
    if name is None:
        return default_device()
    gpus = _gpus()
    found = parse_device(name, len(gpus))
    return jax.devices("cpu")[0] if found.kind == "cpu" else gpus[found.number]


def default_device() -> jax.Device:
    """Where JAX runs programs that no argument ties to a device."""
    check_process()
    device: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.devices(device)[0] if device is None or isinstance(device, str) else device


def check_process() -> None:
    """Raise RuntimeError in a fork of a process in which JAX has run: its threads are missing, so programs would hang.

    Processes of the start methods "spawn" and "forkserver", and those of joblib and Dask, begin anew.
    """
    if os.getpid() != _first_process():
        raise RuntimeError(
            "JAX ran before this process was forked, and would hang: start processes with the method "
            "'spawn' or 'forkserver', as in multiprocessing.get_context('spawn')"
        )


def on_device(device: jax.Device) -> AbstractContextManager[Any]:
    """A context in which JAX computes on a device.

    It changes nothing if this is the default device: JAX would compile everything again.
    """
    context: AbstractContextManager[Any] = jax.default_device(device)
    return nullcontext() if device == default_device() else context


def name_of(device: jax.Device) -> str:
    """The name under which :func:`find_device` finds a device."""
    return "cpu" if device.platform == "cpu" else f"cuda:{device.id}"


def available(device: jax.Device) -> int:
    """Bytes that a device has free; 0 if unknown."""
    stats = device.memory_stats()
    return stats["bytes_limit"] - stats["bytes_in_use"] if stats else free_memory()


def compiler_options(num_trials: int) -> dict[str, Any]:
    """Options under which the barriers of :func:`attsvm._utils.contractions.settle` outlive XLA's fusion on the CPU.

    By default the CPU compiler drops barriers before it fuses, and recomputes W z, for instance, for every token, four
    times slower on small problems. Another pass turns loops over less than 1 kB into functions, whose emitter does not
    know barriers. A third pass divides loops between the cores, but slices of several trials run on the cores
    themselves, and would wait for each other in every step. A compiler without such passes ignores the option. With
    whole AVX-512 registers a batch is faster. JAX's setting ``jax_disable_most_optimizations`` halves the time to
    compile, for few steps.
    """
    if default_device().platform != "cpu":
        return {}
    dropped = ["cse_barrier_expander", "small-while-loop-hoisting"]
    if num_trials > 1:
        dropped.append("cpu-parallel-task-assigner")
    passes = {"xla_disable_hlo_passes": ",".join(dropped)}
    if jax.config.read("jax_disable_most_optimizations"):
        return passes | quick_to_compile()
    return passes | _loop_emitter(num_trials > 1) | {"xla_cpu_prefer_vector_width": 512}


def quick_to_compile() -> dict[str, Any]:
    """Options for a program that takes longer to compile than to run."""
    if default_device().platform != "cpu":
        return {}
    return {"xla_backend_optimization_level": 0} | _loop_emitter(newer=False)


def _loop_emitter(newer: bool) -> dict[str, Any]:
    """The option for one of two loop emitters, the older of which is faster for one trial; JAX 0.11.2 has only one."""
    return {"xla_cpu_use_fusion_emitters": newer} if jax.__version_info__ < (0, 11) else {}


def _gpus() -> list[jax.Device]:
    try:
        return list(jax.devices("gpu"))
    except RuntimeError:  # JAX has been installed without support of GPUs, or there is none
        return []


@cache
def _first_process() -> int:
    """The process that used JAX first. A fork inherits the answer, a process that is started anew does not."""
    return os.getpid()
