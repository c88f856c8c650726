"""The page of ``attsvm sweep show``."""
