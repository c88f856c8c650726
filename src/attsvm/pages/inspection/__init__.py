"""The page of ``attsvm inspect``."""
