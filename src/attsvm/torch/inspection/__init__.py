"""Looking into a trained transformer: what its heads select, and by what margin."""

from attsvm.svm.margin_bounds import MarginInterval
from attsvm.torch.inspection.families.families import Layout
from attsvm.torch.inspection.inspection import Head, Inspection, inspect
from attsvm.torch.inspection.measures import MEASURES, Measure
from attsvm.torch.inspection.view import HeadView

__all__ = ["MEASURES", "Head", "HeadView", "Inspection", "Layout", "MarginInterval", "Measure", "inspect"]
