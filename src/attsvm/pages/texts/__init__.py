"""The page of ``attsvm fit-text``."""
