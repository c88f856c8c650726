"""The catalogue: which norms' margins optimizers of PyTorch, optax and pytorch-optimizer maximise, measured."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from attsvm._utils.extras import check_installed
from attsvm.errors import ProblemError
from attsvm.profiles.verdict import written

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
"""Names of classes and functions, in upper case: the best known optimizers, which a catalogue measures first."""


@dataclass(frozen=True)
class Entry:
    """Measurement of one optimizer in one setting.

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
        Of the first steps; it was found, and None if the optimizer has none.
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

    @property
    def key(self) -> tuple[str, str]:
        """The values that no other entry has."""
        return self.optimizer, self.setting

    @property
    def interval(self) -> str:
        """The largest ratio, its interval and its norm in words; empty if it was not run."""
        if self.ratio is None or self.low is None or self.high is None:
            return ""
        return f"{written(self.ratio)} ({written(self.low)} to {written(self.high)}) {self.norm}"

    def __str__(self) -> str:
        return f"{self.optimizer:45}  {self.setting:20}  {self.verdict:12}  {self.interval}".rstrip()

    @property
    def is_named(self) -> bool:
        """Whether the verdict is a norm."""
        return self.verdict not in (NOT_RUN, "inconclusive")


@dataclass(frozen=True)
class Catalogue:
    """The entries of a catalogue, and how they were measured.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It may lack optimizers and settings: what has no entry has not been measured.

    Attributes
    ----------
    command : str
    versions : dict of str to str
        Of attsvm and of the packages of the optimizers.
    entries : tuple of Entry
        The best known optimizers first.

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
        """The entries of an optimizer, by its import path or the end of it, in upper or lower case.

        Raises ProblemError if it is no text.
        """
        if not isinstance(optimizer, str):
            got = optimizer.__name__ if isinstance(optimizer, type) else type(optimizer).__name__
            raise ProblemError(f"optimizer: expected its name, such as 'torch.optim.SGD', got {got}")
        end = f".{optimizer.lower()}"
        # a variant has its options in parentheses
        return [one for one in self.entries if f".{one.optimizer.split('(')[0].lower()}".endswith(end)]

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each entry.

        Raises ProblemError if pandas is not installed.
        """
        check_installed("to_frame", "frames", "pandas")
        import pandas as pd

        return pd.DataFrame([asdict(one) for one in self.entries])

    def __str__(self) -> str:
        heading = f"{'optimizer':45}  {'trained':20}  {'norm':12}  largest margin ratio (95 % interval), of which norm"
        return "\n".join([heading, *map(str, self.entries)])

    @property
    def extent(self) -> str:
        """How many optimizers have an entry in each setting, in words."""
        counts = Counter(entry.setting for entry in self.entries)
        listed = "; ".join(f"{number} on {setting}" for setting, number in counts.items())
        return f"Measured so far: {listed}. What has no entry has not been measured."

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


def catalogue() -> Catalogue:
    """Return the catalogue that comes with the package.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It has the optimizers and settings that were measured so far. ``benchmarks/measure_catalogue.py`` measures
    it anew.

    Returns
    -------
    Catalogue

    See Also
    --------
    attsvm.margin_profile : Measures one optimizer.

    Examples
    --------
    >>> import attsvm
    >>> [entry.norm for entry in attsvm.profiles.catalogue().of("torch.optim.SGD") if entry.setting == "W"]
    ['frobenius', 'frobenius']
    """
    return Catalogue.parse((files(__package__) / "catalogue.json").read_text(encoding="utf-8"))
