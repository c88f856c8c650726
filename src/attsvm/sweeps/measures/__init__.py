"""Measures of a sweep, one file each: a new measure is one new file, here or outside the package."""
