"""Prediction heads: from the pooled token to the output of a query."""

from attsvm.heads.heads import MLP, FunctionHead, Head, Linear, Quadratic

__all__ = ["MLP", "FunctionHead", "Head", "Linear", "Quadratic"]
