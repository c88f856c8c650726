"""What a page may not do: load anything from the network. Links that a reader follows are allowed."""

import re

_LOADS = re.compile(
    r"""\bsrc(?:set)?=["'](?!\#|data:)|<(?:link|image|use|feImage)\b[^>]*\bhref=["'](?!\#|data:)|@import|url\((?!\#)"""
)


def loads(page: str) -> list[str]:
    """The parts of a page that load a resource."""
    return [found[0] for found in _LOADS.finditer(page)]
