"""Results as JSON, and tables as CSV."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from attsvm._utils.text import as_json


def jsonable(value: Any) -> Any:
    """Python numbers, strings, lists and dicts, with None in place of NaN and infinity."""
    if isinstance(value, dict):
        return jsonable_dict(value)
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def jsonable_dict(values: Mapping[str, Any]) -> dict[str, Any]:
    """A dict whose values are :func:`jsonable`."""
    return {name: jsonable(value) for name, value in values.items()}


def dumps(value: Any, indent: str = "") -> str:
    """JSON with one entry per line, and each list on the line of its name."""
    if not isinstance(value, dict) or not value:
        return as_json(value)
    deeper = indent + "  "
    entries = (f"{deeper}{json.dumps(name)}: {dumps(entry, deeper)}" for name, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
