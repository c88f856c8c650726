"""The catalogue: which norms' margins optimisers of PyTorch, optax and pytorch-optimizer maximise, measured."""

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Any

from attsvm._utils.extensions import did_you_mean, import_object
from attsvm._utils.extras import check_installed
from attsvm.errors import ProblemError
from attsvm.optimizers import OPTIMIZERS
from attsvm.profiles.named import import_optimizer
from attsvm.profiles.verdict import NO_LIMIT, NONE_OF_THESE, written

NOT_RUN = "not run"

OUT_OF_TIME = "the time limit of"
"""How the reason of an entry begins that the time limit ended."""

BEST_KNOWN = (
    (
        "SGD Adam AdamW Adagrad RMSprop Adadelta Adafactor Lion Muon Shampoo SOAP Scion SignSGD LAMB LARS NAdam RAdam "
        "AdaBelief SophiaH Prodigy DAdaptAdam ScheduleFreeAdamW Adamax Yogi Adan"
    )
    .upper()
    .split()
)
"""Names of classes and functions, in upper case: the best known optimisers, which a catalogue measures first."""


def _own_names() -> list[str]:
    """The optimisers of attsvm, which can be profiled; those for PyTorch where it is installed."""
    names = OPTIMIZERS.names()
    with contextlib.suppress(ModuleNotFoundError):
        of_torch = import_object("attsvm.torch:__all__")
        names = [*(f"attsvm.torch.{name}" for name in of_torch if name.endswith("Descent")), *names]
    return names


@dataclass(frozen=True)
class Entry:
    """The measurement of one optimiser in one setting.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    Attributes
    ----------
    optimizer, setting : str
        The import path, with options that differ from the defaults; the setting is "W", "K and Q", "W, mini-batches
        of 2" or "W, as shipped".
    verdict : str
        The name of the norm, "inconclusive", or "not run" if it raised an error.
    reason : str
        What the verdict rests on, or the first line of the error.
    norm, second : str
        The norms with the largest and the second largest mean margin ratio; empty if it was not run, as the next four.
    ratio, low, high, second_ratio : float or None
        The largest mean ratio and its interval (Student's, 95 % over the problems); the second largest mean ratio.
    schedule : str
    learning_rate : float or None
        Of the first steps; it was found, and None if the optimiser has none.
    steps : int
        With this schedule.
    decay : float
        The weight decay that is the optimizer's default and was switched off.
    decays : bool
        Whether it shrinks the weights nevertheless.
    underflows : bool
        Whether it ends elsewhere on the gradient itself, which is not divided by its norm.
    unfinished : bool
        Whether it is inconclusive and more steps can change that; False if the time limit ended it.
    seconds : float
        Processor time.
    cause : str
        Some words for why it is inconclusive, as for :class:`attsvm.MarginProfile`, or "time limit".
    """

    optimizer: str
    setting: str
    verdict: str
    reason: str
    norm: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    second: str = ""
    second_ratio: float | None = None
    schedule: str = ""
    learning_rate: float | None = None
    steps: int = 0
    decay: float = 0.0
    decays: bool = False
    underflows: bool = False
    unfinished: bool = False
    seconds: float = 0.0
    cause: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The values that no other entry has."""
        return self.optimizer, self.setting

    @property
    def trained(self) -> str:
        """The setting, and whether weight decay was switched off for it."""
        return f"{self.setting}, no decay" if self.decay else self.setting

    @property
    def interval(self) -> str:
        """The largest ratio, with its interval and norm, in words; empty if it was not run."""
        if self.ratio is None or self.low is None or self.high is None:
            return ""
        return f"{written(self.ratio)} ({written(self.low)} to {written(self.high)}) {self.norm}"

    def __str__(self) -> str:
        verdict = f"{self.verdict:12}  {self.interval:33}"
        return f"{self.optimizer:45}  {self.trained:30}  {verdict}  {self.cause}".rstrip()

    @property
    def is_named(self) -> bool:
        """Whether the verdict is a norm."""
        return self.verdict not in (NOT_RUN, "inconclusive")

    @property
    def is_unknown(self) -> bool:
        """Whether it was run and neither names a norm nor shows that there is none."""
        return self.ratio is not None and not self.is_named and self.cause not in (NONE_OF_THESE, *NO_LIMIT)


@dataclass(frozen=True)
class Catalogue:
    """The entries of a catalogue, and how they were measured.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It may lack optimisers and settings: what has no entry has not been measured.

    Attributes
    ----------
    command : str
    versions : dict of str to str
        Of attsvm and of the packages of the optimisers.
    entries : tuple of Entry
        The best known optimisers first.

    See Also
    --------
    attsvm.profiles.catalogue, attsvm.margin_profile

    Examples
    --------
    >>> import attsvm
    >>> found = attsvm.profiles.catalogue()
    >>> [(entry.setting, entry.verdict) for entry in found.of("torch.optim.SGD")][0]
    ('W', 'frobenius')
    """

    command: str
    versions: Mapping[str, str]
    entries: tuple[Entry, ...]

    def of(self, optimizer: str) -> list[Entry]:
        """The entries for an optimiser, given by its import path or the end of it, in upper or lower case.

        Raises ProblemError if it is no text.
        """
        if not isinstance(optimizer, str):
            got = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
            raise ProblemError(f"optimizer: expected its name, such as 'torch.optim.SGD', got {got}")
        end = f".{optimizer.lower()}"
        # a variant has its options in parentheses
        return [one for one in self.entries if f".{one.optimizer.split('(')[0].lower()}".endswith(end)]

    def only(self, optimizer: str) -> "Catalogue":
        """The catalogue of one optimiser.

        Raises ProblemError if it has no entry.
        """
        if not (found := self.of(optimizer)):
            # by the last part, as one that is shortened, or in full
            paths = {one.optimizer.split("(")[0] for one in self.entries}
            end = optimizer.lower().rsplit(".", 1)[-1]
            own = next((name for name in _own_names() if name.lower().endswith(end)), None)
            hint = did_you_mean(optimizer, [*paths, *(path.rsplit(".", 1)[-1] for path in paths)])
            hint = f"; attsvm's own are not in it: run `attsvm profile {own}`" if own else hint
            raise ProblemError(
                f"optimizer: expected a name in the catalogue, such as torch.optim.Adam, got {optimizer!r}{hint}"
            )
        return replace(self, entries=tuple(found))

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each entry.

        Raises ProblemError if pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.entries])

    def __str__(self) -> str:
        heading = f"{'optimizer':45}  {'trained':30}  {'norm':12}  {'largest margin ratio (95 %), norm':33}  cause"
        return "\n".join([heading, *map(str, self.entries)])

    @property
    def extent(self) -> str:
        """How many optimisers have an entry in each setting, in words."""
        counts = Counter(entry.setting for entry in self.entries)
        listed = "; ".join(f"{number} on {setting}" for setting, number in counts.items())
        return f"Measured so far: {listed}. Optimisers without an entry have not been measured."

    def text(self) -> str:
        """The content of its file."""
        entries = [{name: x for name, x in asdict(one).items() if x not in ("", None)} for one in self.entries]
        # one line for each entry, so that a changed entry is a changed line
        lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in entries)
        about = json.dumps({"command": self.command, "versions": dict(self.versions)}, indent=1)[:-2]
        return f'{about},\n "entries": [\n{lines}\n ]\n}}\n'

    @classmethod
    def parse(cls, text: str) -> "Catalogue":
        """Read the content of a file.

        Raises ProblemError if it is not that of a catalogue.
        """
        try:
            read = json.loads(text)
            return cls(read["command"], read["versions"], tuple(Entry(**each) for each in read["entries"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ProblemError(f"catalogue: expected the JSON of a catalogue, got something else ({error})") from error


def without_decay(optimizer: Any, setting: str, steps: int) -> str:
    """Say what the catalogue has of an optimiser without its weight decay; empty if it names no norm.

    ``steps``: those of a profile with the decay; the catalogue's are not compared with fewer.
    """
    given = (
        optimizer.func if isinstance(optimizer, partial) and {*optimizer.keywords} <= {"weight_decay"} else optimizer
    )
    name = given if isinstance(given, str) else getattr(given, "__name__", "")
    for entry in catalogue().of(name) if name else ():
        same = name == entry.optimizer or (name != given and import_optimizer(entry.optimizer) is given)
        if same and entry.setting == setting and entry.decay and entry.is_named and entry.steps <= steps:
            return (
                f" The cause is its weight decay: without it, at most as many steps give the {entry.verdict} norm "
                f"({written(entry.ratio or 0.0)}), in the row {entry.optimizer} on {entry.trained} of the catalogue."
            )
    return ""


def catalogue() -> Catalogue:
    """Return the catalogue that comes with the package.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It has the optimisers and settings that were measured so far. ``benchmarks/measure_catalogue.py`` measures
    it anew.

    Returns
    -------
    Catalogue

    See Also
    --------
    attsvm.margin_profile : Measures one optimiser.

    Examples
    --------
    >>> import attsvm
    >>> [entry.norm for entry in attsvm.profiles.catalogue().of("torch.optim.SGD") if entry.setting == "W"]
    ['frobenius', 'frobenius']
    """
    return Catalogue.parse((files(__package__) / "catalogue.json").read_text(encoding="utf-8"))
