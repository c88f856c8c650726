"""Results as JSON."""

import json
import math
from typing import Any

import numpy as np


def jsonable(value: Any) -> Any:
    """Plain Python, with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: jsonable(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dumps(value: Any, indent: str = "") -> str:
    """JSON as people read it: an entry a line, and each list on the line of its name."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    deeper = indent + "  "
    entries = (f"{deeper}{json.dumps(name)}: {dumps(entry, deeper)}" for name, entry in value.items())
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"
