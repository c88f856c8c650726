"""The page of ``attsvm compare``."""
