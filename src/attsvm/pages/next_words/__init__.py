"""The page of ``attsvm fit-text --task next-token``."""
