"""The page of ``attsvm profile``."""
