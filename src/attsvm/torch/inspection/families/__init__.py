"""Families of transformers that ``attsvm inspect`` can read."""
