"""Measures a catalogue of optimizers, entry by entry, into a folder that keeps what is ready."""

import importlib.metadata
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attsvm._utils.checks import check_integer, check_number
from attsvm._utils.files import atomic_write, make_folder, read_text
from attsvm._utils.progress import Callback, Progress
from attsvm.errors import ProblemError
from attsvm.profiles.entries import NOT_RUN, OUT_OF_TIME, Catalogue, Entry
from attsvm.profiles.installed import BEST_KNOWN, Installed, installed_optimizers
from attsvm.profiles.named import stepped
from attsvm.profiles.profile import FEWEST_STEPS, NORMS, margin_profile
from attsvm.profiles.stepped import first_line
from attsvm.statistics import student_half_width

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "W": {},
    # steps on factors lead to norms of products, too
    "K and Q": {"attention": "factored", "norms": (*NORMS, "nu", "gamma2")},
    "W, mini-batches of 2": {"batch_size": 2},
}
"""What is trained, as arguments of :func:`attsvm.margin_profile`, in the order in which it is measured."""

AS_SHIPPED = "W, as shipped"
"""The setting of the best known classes of PyTorch with their own learning rates and weight decay."""

_MORE = 4
"""How many times the steps an entry gets that more steps can change."""

_PACKAGES = ("attsvm", "torch", "optax", "pytorch-optimizer", "jax", "numpy")


def measure_catalogue(
    folder: Path,
    command: str,
    *,
    seeds: int = 20,
    steps: int = 20_000,
    time_limit: float = 120.0,
    optimizers: list[Installed] | None = None,
    callback: Callback | None = None,
) -> Iterator[Entry]:
    """Measure what the store of a folder lacks, and yield each entry when it has been written.

    An entry that more steps can change is measured and yielded again, with four times the steps and the time limit.
    ``folder`` gets ``catalogue.json``, written anew with each entry, and a later call continues where an earlier one
    ended. ``command``: what it is said to be made by. ``time_limit``: seconds of processor time for an entry.

    Raises ProblemError for bad options, if the store was made by another command, whose options its entries have, and
    if it has entries that were measured with another version of a package that is installed.
    """
    # an entry would take them for a fault of its optimizer
    check_integer("seeds", seeds, 1)
    check_integer("steps", steps, FEWEST_STEPS)
    check_number("time_limit", time_limit, "a positive number of seconds", lambda x: x > 0)
    make_folder(folder)
    store = folder / "catalogue.json"
    begun = Catalogue.parse(read_text(store)) if store.exists() else Catalogue(command, {}, ())
    if begun.command != command:
        raise ProblemError(
            f"folder: {folder} holds a catalogue that was measured by `{begun.command}`; continue with this command "
            "or choose another folder"
        )
    versions = _versions()
    for name, earlier in begun.versions.items() if begun.entries else ():
        if versions.setdefault(name, earlier) != earlier:
            raise ProblemError(
                f"folder: {folder} holds a catalogue that was measured with {name} {earlier}, and {versions[name]} is "
                f"installed; install {name} {earlier} or choose another folder"
            )
    known = {one.key: one for one in begun.entries}
    listed = installed_optimizers() if optimizers is None else optimizers
    order = {one.name: place for place, one in enumerate(listed)}
    best = [replace(one, decay={}) for one in listed if one.rank < len(BEST_KNOWN)]
    wanted = [(one, setting) for setting in SETTINGS for one in listed]
    wanted += [(one, AS_SHIPPED) for one in best if inspect.isclass(one.make())]
    for done, (one, setting) in enumerate(wanted):
        named = _named(callback, one.name, done, len(wanted))
        for times in (1, _MORE):
            old = known.get((one.name, setting))
            if old is not None and not (old.unfinished and old.steps < times * steps):
                continue
            entry = _measured(one, setting, seeds, times * steps, times * time_limit, named)
            if entry is None:  # the callback ended it
                return
            known[entry.key] = entry
            # those that are no longer installed come last
            entries = sorted(known.values(), key=lambda one: order.get(one.optimizer, len(order)))
            with atomic_write(store) as file:
                file.write(Catalogue(command, versions, tuple(entries)).text().encode())
            yield entry


def _measured(
    one: Installed, setting: str, seeds: int, steps: int, time_limit: float, callback: Callback | None
) -> Entry | None:
    """The entry of an optimizer; None if the callback ended it."""
    began = time.process_time()
    of_time = stopped = False

    def ends(at: Progress) -> bool:
        nonlocal of_time, stopped
        stopped = stopped or (callback is not None and bool(callback(at)))
        of_time = of_time or time.process_time() - began > time_limit
        return stopped or of_time

    unmeasured = Entry(one.name, setting, NOT_RUN, "", decay=max(one.decay.values(), default=0.0))
    try:
        own = stepped(one.make(), None)
        decays = own.decays_weights({"W": (10, 10)})
        arguments = SETTINGS.get(setting, {"learning_rate": own.learning_rate})
        profile = margin_profile(one.make(), seeds=seeds, steps=steps, callback=ends, **arguments)
    except Exception as error:  # an optimizer may fail in any way
        return replace(unmeasured, reason=first_line(error).removeprefix("optimizer: "))
    if stopped:
        return None
    place = profile.schedules.index(profile.chosen)
    mean, widths = profile.mean[place], student_half_width(profile.ratios[place])
    second, top = (int(i) for i in np.argsort(mean, kind="stable")[-2:])
    # the selected tokens are those of the weights, so a ratio is between 0 and 1; of one problem nothing more is known
    ends_of_interval = np.clip([mean[top] - widths[top], mean[top] + widths[top]], 0.0, 1.0)
    ratio, low, high, second_ratio = (round(float(x), 4) for x in (mean[top], *ends_of_interval, mean[second]))
    return replace(
        unmeasured,
        verdict=profile.verdict,
        reason=f"{OUT_OF_TIME} {time_limit:g} s ended it." if of_time else profile.reason,
        norm=profile.norms[top],
        ratio=ratio,
        low=low,
        high=high,
        second=profile.norms[second],
        second_ratio=second_ratio,
        schedule=profile.chosen,
        learning_rate=None if profile.learning_rate is None else float(f"{profile.learning_rate:.3g}"),
        steps=profile.steps_made[place],
        decays=decays,
        underflows=profile.underflows,
        unfinished=profile.unfinished,
        seconds=round(time.process_time() - began, 1),
    )


def _named(callback: Callback | None, name: str, done: int, number: int) -> Callback | None:
    """A callback that counts entries, and says which optimizer is measured."""
    if callback is None:
        return None
    return lambda at: callback(replace(at, step=done, steps=number, stage=name))


def _versions() -> dict[str, str]:
    installed = {each.metadata["Name"].lower().replace("_", "-") for each in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name) for name in _PACKAGES if name in installed}
