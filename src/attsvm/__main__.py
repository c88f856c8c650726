"""Run the command line: ``python -m attsvm`` is the same as ``attsvm``."""

from attsvm.cli.main import main

main()
