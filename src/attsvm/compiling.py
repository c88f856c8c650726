"""Compiling functions for arrays of given shapes. What has been compiled before is read from ``attsvm.cache``."""

import contextlib
import hashlib
import logging
import os
import platform
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jaxlib.version import __version__ as jaxlib_version

from attsvm import cache as disk
from attsvm._utils.jax_devices import check_process, default_device

_log = logging.getLogger(__name__)
_FLAGS = os.environ.get("XLA_FLAGS", "").strip()  # XLA reads them once; later changes have no effect
_FORMAT = 2  # to be raised when programs that earlier versions kept must not be read


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Compile a function, or read the program that an earlier process has compiled.

    JAX has one cache for a whole process, under settings of the user. These programs have a cache of their own, which
    is not used while JAX's is on.

    Parameters
    ----------
    function : callable
    arguments : tuple
        Arrays, or trees of them, or their shapes.
    options : mapping
        Options of the compiler.

    Returns
    -------
    jax.stages.Compiled
        To be called with arguments of the same shapes.
    """
    # an argument that is not used has no effect on the text of the program, but on how it is called
    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    text = lowered.as_text()
    # a callback refers to a function of this process
    if not disk.enabled() or _flags_in_a_file() or _jax_keeps_programs() or "callback" in text:
        return lowered.compile(compiler_options=dict(options))
    device = default_device()
    name = _name(text, options, device)
    kept = disk.read(name)
    if kept is not None:
        with contextlib.suppress(Exception):  # whatever is wrong with it, compiling mends it
            program = deserialize_and_load(kept, lowered.in_tree, lowered.out_tree, device.client, [device])
            _log.info("read a compiled program of %s from the cache", device)
            return program
    _log.info("compile a program for %s", device)
    program = lowered.compile(compiler_options=dict(options))
    with contextlib.suppress(Exception):  # what JAX cannot write is not kept
        disk.write(name, serialize(program)[0])
    return program


def by_shape(function: Callable[..., Any], options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """The function, compiled at the first call with arrays of these shapes, as with ``jax.jit``; see :func:`compiled`.

    Its arguments are trees of arrays, ``options`` those of the compiler. A call takes some microseconds longer than one
    of ``jax.jit``.
    """
    programs: dict[Any, Any] = {}

    def call(*arguments: Any) -> Any:
        check_process()
        leaves, structure = jax.tree.flatten(arguments)
        shapes = structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        if shapes not in programs:
            programs[shapes] = compiled(function, arguments, options or {})
        return programs[shapes](*arguments)

    return call


def _flags_in_a_file() -> bool:
    """Whether XLA's flags are the name of a file, which may change."""
    return bool(_FLAGS) and not _FLAGS.startswith("-")


def _jax_keeps_programs() -> bool:
    """Whether JAX's own cache is on. What JAX has read from it cannot be written: its functions are missing."""
    config: Any = jax.config
    return bool(config.jax_enable_compilation_cache and config.jax_compilation_cache_dir)


def _name(text: str, options: Mapping[str, Any], device: jax.Device) -> str:
    """A hash of what the machine code follows from: program, compiler and its settings, and the processor."""
    versions = jax.__version__, jaxlib_version, device.client.platform_version
    # of the default device, what it is counts, and not whether it was chosen
    config = {name: value for name, value in jax.config.values.items() if name != "jax_default_device"}
    settings = sorted(config.items()), _FLAGS, sorted(options.items())
    target = device.platform, device.device_kind, device.id, len(jax.devices()), _processor()
    return hashlib.sha256(repr((_FORMAT, text, versions, settings, target)).encode()).hexdigest()


@cache
def _processor() -> tuple[str, ...]:
    """What the processor is able to do. A program must not be loaded where instructions that it uses are missing."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.lower().startswith(("flags", "features")):
                return platform.machine(), line
    return platform.machine(), platform.processor(), platform.node()
