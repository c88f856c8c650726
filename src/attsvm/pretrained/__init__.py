"""Models of the ``transformers`` package: loading them without running code of theirs, and their texts and pictures."""
