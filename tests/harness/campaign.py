"""What a campaign of the harness is: many seeded cases, each of which checks attsvm from outside."""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Outcome:
    """What one case found."""

    checked: int  # solves, trainings, files or signals
    failures: tuple[str, ...] = ()  # a line for each wrong answer, traceback or lost result, with what reproduces it
    counts: Mapping[str, int] = field(default_factory=dict)  # how often something was seen, such as a status


class Campaign(ABC):
    """A search for defects over seeded cases."""

    name: ClassVar[str]  # that of its module
    unit: ClassVar[str]  # what is counted, in the plural
    full: ClassVar[int]  # how many of them the full size checks
    small: ClassVar[tuple[int, ...]]  # the cases that the test suite runs
    limit_s: ClassVar[float] = 600.0  # a case that takes longer hangs, which is a failure

    @abstractmethod
    def check(self, case: int) -> Outcome:
        """Run one case. The number of the case is its seed: the same number checks the same thing."""

    def missing(self) -> str | None:
        """Why the campaign cannot run on this machine; None if it can."""
        return None


def campaigns() -> dict[str, Campaign]:
    """Every campaign by its name. A module of this folder that defines ``CAMPAIGN`` is one."""
    modules = [import_module(f"harness.{module.name}") for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    found: list[Campaign] = [module.CAMPAIGN for module in modules if hasattr(module, "CAMPAIGN")]
    return {campaign.name: campaign for campaign in found}
