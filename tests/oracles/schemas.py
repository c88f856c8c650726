"""The schemas of results in ``docs/schemas``, and the check of a result against the one of its name."""

import json
from functools import cache
from pathlib import Path

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def check_result(result):
    """Raise ``jsonschema.ValidationError`` unless a result follows its schema."""
    validator_of(result["schema"]).validate(result)


@cache
def validator_of(name):
    """The validator of a schema such as "attsvm.solve/1"."""
    from jsonschema import Draft202012Validator

    found = [schema for schema in all_schemas().values() if schema["title"] == name]
    assert len(found) == 1, f"docs/schemas has {len(found)} schemas of {name}"
    return Draft202012Validator(found[0])


@cache
def all_schemas():
    """The schemas by the names of their files."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(SCHEMAS.glob("*.json"))}
