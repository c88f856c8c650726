"""The page of ``attsvm fit``."""
