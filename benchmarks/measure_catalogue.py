"""Measure the catalogue of optimizers: which norm's margin each optimizer of the installed packages maximises.

The catalogue that comes with the package, src/attsvm/profiles/catalogue.json, is made by this script. It measures the
optimizers of PyTorch, optax and pytorch-optimizer, entry by entry, into `catalogue.json` of a folder, in some hours; a
later call continues where an earlier one ended.

Run: python benchmarks/measure_catalogue.py --out FOLDER [--seeds 20] [--steps 20000] [--time-limit 120]
"""

import argparse
import importlib
import importlib.metadata
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from attsvm._utils.checks import check_integer, check_number
from attsvm._utils.files import atomic_write, make_folder, read_text
from attsvm._utils.progress import Callback, Progress
from attsvm.errors import ProblemError
from attsvm.profiles import NORMS, SEEDS, STEPS, Catalogue, Entry, import_optimizer, margin_profile
from attsvm.profiles.entries import BEST_KNOWN, NOT_RUN, OUT_OF_TIME
from attsvm.profiles.named import stepped
from attsvm.profiles.profile import FEWEST_STEPS
from attsvm.profiles.stepped import first_line
from attsvm.profiles.verdict import NONE_OF_THESE, written
from attsvm.statistics import student_half_width

VARIANTS: Mapping[str, Mapping[str, Any]] = {"torch.optim.SGD": {"momentum": 0.9}, "optax.sgd": {"momentum": 0.9}}
"""Options of further entries: a line here adds one to the catalogue."""


@dataclass(frozen=True)
class Installed:
    """An optimizer of an installed package, and the arguments that differ from its defaults."""

    path: str
    variant: Mapping[str, Any] = field(default_factory=dict)
    # the default weight decay, which is switched off: what it converges to is another question
    decay: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The path, with the options of a variant."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.variant.items())
        return f"{self.path}({options})" if options else self.path

    @property
    def rank(self) -> int:
        """Its place among the best known optimizers, from 0."""
        own = self.path.rsplit(".", 1)[-1].upper()
        return BEST_KNOWN.index(own) if own in BEST_KNOWN else len(BEST_KNOWN)

    def make(self) -> Any:
        """What :func:`attsvm.margin_profile` takes."""
        found = import_optimizer(self.path)
        options = {**self.variant, **dict.fromkeys(self.decay, 0.0)}
        methods = filter(inspect.isfunction, vars(found).values()) if inspect.isclass(found) else ()
        if any("use_muon" in text for text in (found.__doc__ or "", *map(inspect.getsource, methods))):
            # it expects groups of parameters that say whether they are matrices to orthogonalise

            def of_matrices(parameters: Any) -> Any:
                return found([{"params": parameters, "use_muon": True}], **options)

            of_matrices.__qualname__ = found.__qualname__
            return of_matrices
        return partial(found, **options) if options else found


def installed_optimizers() -> list[Installed]:
    """Every optimizer of the three packages, the best known first; a package that is missing has none."""
    found: list[Installed] = []
    for path, factory in [*_of_torch(), *_of_optax(), *_of_pytorch_optimizer()]:
        decay = _decay(factory)
        variants = [{}, VARIANTS[path]] if path in VARIANTS else [{}]
        found += [Installed(path, variant, decay) for variant in variants]
    return sorted(found, key=lambda one: one.rank)


def _of_torch() -> Iterator[tuple[str, Any]]:
    torch = _module("torch")
    for name, found in sorted(vars(torch.optim).items()) if torch else ():
        base = torch.optim.Optimizer
        if inspect.isclass(found) and issubclass(found, base) and found is not base:
            yield f"torch.optim.{name}", found


def _of_optax() -> Iterator[tuple[str, Any]]:
    """The functions that return a transformation and have a learning rate."""
    for module in ("optax", "optax.contrib"):
        for name, found in sorted(vars(importlib.import_module(module)).items()):
            if not inspect.isfunction(found) or name.startswith(("_", "scale_by_")):
                continue
            signature = inspect.signature(found)
            returns = "GradientTransformation" in str(signature.return_annotation)
            if returns and any(parameter.endswith("learning_rate") for parameter in signature.parameters):
                yield f"{module}.{name}", found


def _of_pytorch_optimizer() -> Iterator[tuple[str, Any]]:
    """The classes that it loads by name, without those that it takes from PyTorch."""
    package = _module("pytorch_optimizer")
    for name in package.get_supported_optimizers() if package else ():
        found = package.load_optimizer(name)
        home = "pytorch_optimizer" if getattr(package, found.__name__, None) is found else found.__module__
        if not found.__module__.startswith("torch."):
            yield f"{home}.{found.__name__}", found


def _module(name: str) -> ModuleType | Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _decay(factory: Any) -> dict[str, float]:
    """The arguments for weight decay whose default is not zero."""
    given = inspect.signature(factory).parameters.values()
    decays = {each.name: each.default for each in given if "weight_decay" in each.name or each.name.endswith("_wd")}
    return {name: float(x) for name, x in decays.items() if isinstance(x, int | float) and x is not True and x > 0}


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
    seeds: int = SEEDS,
    steps: int = STEPS,
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
            entry = beside_all_sequences(entry, known.get((one.name, "W")))
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
        cause="time limit" if of_time else profile.cause,
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


def beside_all_sequences(entry: Entry, on_all: Entry | None) -> Entry:
    """Say of an inconclusive entry on mini-batches what was measured of the optimizer with all sequences."""
    batches = "batch_size" in SETTINGS.get(entry.setting, {})
    if not (batches and entry.cause) or on_all is None or on_all.ratio is None:
        return entry
    if on_all.is_named:
        why = ": the batches lead it elsewhere" if entry.cause == NONE_OF_THESE else ""
        said = f"With all sequences it is the {on_all.verdict} norm ({written(on_all.ratio)}){why}."
    else:
        said = f"With all sequences it is inconclusive, too ({on_all.cause})."
    return replace(entry, reason=f"{entry.reason} {said}")


def _named(callback: Callback | None, name: str, done: int, number: int) -> Callback | None:
    """A callback that counts entries, and says which optimizer is measured."""
    if callback is None:
        return None
    return lambda at: callback(replace(at, step=done, steps=number, stage=name))


def _versions() -> dict[str, str]:
    installed = {each.metadata["Name"].lower().replace("_", "-") for each in importlib.metadata.distributions()}
    return {name: importlib.metadata.version(name) for name in _PACKAGES if name in installed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of catalogue.json")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of problems at most")
    parser.add_argument("--steps", type=int, default=STEPS, help="number of steps with each schedule at most")
    parser.add_argument("--time-limit", type=float, default=120.0, help="seconds of processor time for an entry")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # halves the time of gradients that are waited for
    chosen = {"seeds": options.seeds, "steps": options.steps, "time_limit": options.time_limit}
    said = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in chosen.items())
    command = f"python benchmarks/measure_catalogue.py --out FOLDER {said}"
    for entry in measure_catalogue(options.out, command, **chosen):
        print(entry, flush=True)


if __name__ == "__main__":
    main()
