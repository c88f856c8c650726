"""The optimizers of PyTorch, optax and pytorch-optimizer that are installed, found by inspecting these packages."""

import importlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from attsvm.profiles.named import import_optimizer

VARIANTS: Mapping[str, Mapping[str, Any]] = {"torch.optim.SGD": {"momentum": 0.9}, "optax.sgd": {"momentum": 0.9}}
"""Options of further entries: a line here adds one to the catalogue."""

BEST_KNOWN = (
    (
        "SGD Adam AdamW Adagrad RMSprop Adadelta Adafactor Lion Muon Shampoo SOAP Scion SignSGD LAMB LARS NAdam RAdam "
        "AdaBelief SophiaH Prodigy DAdaptAdam ScheduleFreeAdamW Adamax Yogi Adan"
    )
    .upper()
    .split()
)
"""Names of classes and functions, in upper case: the best known optimizers, which a catalogue measures first."""


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
        """The place among the best known optimizers, from 0."""
        own = self.path.rsplit(".", 1)[-1].upper()
        return BEST_KNOWN.index(own) if own in BEST_KNOWN else len(BEST_KNOWN)

    def make(self) -> Any:
        """Make what :func:`attsvm.margin_profile` takes."""
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
