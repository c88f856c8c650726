"""``python -m attsvm`` is ``attsvm``."""

from attsvm.cli.main import main

main()
