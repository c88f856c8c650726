"""Inspection of trained transformers: what their heads select, and by what margin."""

from attsvm.svm.margin_interval import MarginInterval
from attsvm.torch.inspection.causal import CausalTest
from attsvm.torch.inspection.comparison import Comparison, HeadChange, WeightChange, compare
from attsvm.torch.inspection.explanation import Explanation, LogitSplit, MarginTerms, OriginPair
from attsvm.torch.inspection.families import FAMILIES, Family, Layout
from attsvm.torch.inspection.inspection import inspect
from attsvm.torch.inspection.measures import MEASURES, Measure
from attsvm.torch.inspection.reasons import Reasons, SmallestChange
from attsvm.torch.inspection.result import Head, HeadProgress, Inspection
from attsvm.torch.inspection.view import HeadView

__all__ = [
    "FAMILIES",
    "MEASURES",
    "CausalTest",
    "Comparison",
    "Explanation",
    "Family",
    "Head",
    "HeadChange",
    "HeadProgress",
    "HeadView",
    "Inspection",
    "Layout",
    "LogitSplit",
    "MarginInterval",
    "MarginTerms",
    "Measure",
    "OriginPair",
    "Reasons",
    "SmallestChange",
    "WeightChange",
    "compare",
    "inspect",
]
