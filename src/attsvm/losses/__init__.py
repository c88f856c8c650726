"""Losses whose slopes do not underflow."""

from attsvm.losses.losses import LOSSES, CrossEntropy, Loss, OutputLoss, parse_loss

__all__ = ["LOSSES", "CrossEntropy", "Loss", "OutputLoss", "parse_loss"]
