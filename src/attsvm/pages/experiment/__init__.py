"""The page of ``attsvm experiment``."""
