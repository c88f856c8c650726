"""The figures and tables of the papers, one file each, measured anew and judged by a criterion."""

from attsvm.reproduce.registry import EXPERIMENTS
from attsvm.reproduce.run import chosen, run, write

__all__ = ["EXPERIMENTS", "chosen", "run", "write"]
