"""Write the JSON schemas of all results into a folder."""

import sys
from pathlib import Path

from attsvm.pages.schemas import schema_files

for name, text in schema_files().items():
    (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
