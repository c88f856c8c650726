"""What a fit found, for people: numbers, figures, a page, and the folder that holds them."""

from attsvm.report.folder import claim_folder, write_folder
from attsvm.report.numbers import numbers

__all__ = ["claim_folder", "numbers", "write_folder"]
