"""The commands of ``attsvm``, one file each; attsvm.cli puts them together."""
