"""``python -m attsvm`` is ``attsvm``."""

from attsvm.cli import main

main()
